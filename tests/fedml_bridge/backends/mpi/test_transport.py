"""Messages between ranks: packing, unpacking and the channel."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.mpi.transport import (
    ALIGNMENT,
    Message,
    pack,
    unpack,
)
from tests.backends.mpi.conftest import program


def test_unpack_returns_the_packed_tensors() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = OrderedDict(
        weights=torch.randn(3, 5, generator=generator),
        turned=torch.randn(4, 6, generator=generator).T,
        half=torch.randn(7, generator=generator).to(torch.bfloat16),
        double=torch.tensor(float("nan"), dtype=torch.float64),
        steps=torch.tensor(12),
        flags=torch.tensor([True, False, True]),
        nothing=torch.empty(0, 3),
    )
    message = unpack(pack(Message("trained", {"client": 3}, tensors)), sender=2)
    assert (message.kind, message.header, message.sender) == ("trained", {"client": 3}, 2)
    back = message.tensors
    assert list(back) == list(tensors)
    for key, tensor in tensors.items():
        assert back[key].dtype == tensor.dtype
        assert torch.equal(back[key].nan_to_num(), tensor.nan_to_num())
        assert back[key].data_ptr() % ALIGNMENT == 0 or tensor.numel() == 0
    back["weights"].zero_()
    assert tensors["weights"].abs().sum() > 0, "the caller's tensors are the caller's"


@pytest.mark.slow
def test_channel_sends_messages_whole_and_in_pieces() -> None:
    result = program(3, "echo_messages.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("the same") == 2


def test_pack_refuses_entries_that_are_no_tensors() -> None:
    with pytest.raises(UserError, match="'w' is a list"):
        pack(Message("trained", {}, {"w": [1.0]}))  # type: ignore[dict-item]
