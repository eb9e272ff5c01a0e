"""Which updates of a round are far larger than the others."""

from __future__ import annotations

import pytest
import torch

from mrtf_fedml.algorithms import ClientUpdate
from mrtf_fedml.rounds.norms import far_off


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25, 1e36])
def test_an_update_far_from_the_median_is_named_whatever_the_size_of_all(size: float) -> None:
    start = {"w": torch.zeros(4), "frozen": torch.ones(3), "steps": torch.tensor(0)}

    def update(client: int, times: float) -> ClientUpdate:
        moved = {"w": torch.full((4,), times * size), "frozen": torch.ones(3), "steps": torch.tensor(10**9)}
        return ClientUpdate(client, 1, moved, loss=None)

    far = far_off(start, [update(0, 1.0), update(1, 1.5), update(2, 30.0)])
    assert far == {2: "its update is 20 times as large as the round's median"}
    assert far_off(start, [update(0, 1.0), update(1, 1.5), update(2, 9.0)]) == {}
    assert far_off(start, [update(0, 1.0), update(1, 30.0)]) == {}
