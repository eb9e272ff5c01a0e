"""The parts of the MPI backend that need no second rank: buffers, placement, GPUs, threads."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import ServerBench
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.mpi.placement import Placement
from mrtf_fedml.fedml_bridge.mpi.refinery import SharedBench, batch_part
from mrtf_fedml.fedml_bridge.mpi.transport import (
    ALIGNMENT,
    Parcel,
    pack,
    unpack,
)
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.refinery.distill import distill, distillation_loss
from mrtf_fedml.refinery.patience import agreement
from mrtf_fedml.settings import MrTFSettings

from .conftest import program


def test_tensors_come_out_of_the_buffer_as_they_went_in() -> None:
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
    parcel = unpack(pack(Parcel("trained", {"client": 3}, tensors)), sender=2)
    assert (parcel.kind, parcel.facts, parcel.sender) == ("trained", {"client": 3}, 2)
    back = parcel.tensors
    assert list(back) == list(tensors)
    for key, tensor in tensors.items():
        assert back[key].dtype == tensor.dtype
        assert torch.equal(back[key].nan_to_num(), tensor.nan_to_num())
        assert back[key].data_ptr() % ALIGNMENT == 0 or tensor.numel() == 0
    back["weights"].zero_()
    assert tensors["weights"].abs().sum() > 0, "the caller's tensors are the caller's"


def test_a_parcel_crosses_ranks_in_pieces_and_whole() -> None:
    told = program(3, "parcels.py")
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("the same") == 2


def test_a_message_of_something_else_is_refused() -> None:
    with pytest.raises(UserError, match="'w' is a list"):
        pack(Parcel("trained", {}, {"w": [1.0]}))  # type: ignore[dict-item]


def test_every_client_is_handed_out_once_heaviest_first() -> None:
    load = {client: client % 7 for client in range(40)}
    placement = Placement(range(40), load)
    order = [placement.next_client() for _ in range(41)]
    assert order[-1] is None
    assert sorted(client for client in order if client is not None) == list(range(40))
    loads = [load[client] for client in order if client is not None]
    assert loads == sorted(loads, reverse=True)


def test_a_shared_bench_is_the_servers_bench() -> None:
    model = nn.Linear(2, 3)
    bench = ServerBench(model, torch.zeros(4, 2), FeatureTap(model, None, torch.zeros(2, 2)), classes=3, positions=5)
    shared = SharedBench(bench, *([None] * 3), predicted={})  # type: ignore[arg-type, call-arg]
    for field in dataclasses.fields(ServerBench):
        # What a bench remembers of its last reading and teaching is its own.
        if field.name not in ("_last", "_refined", "_steps"):
            assert getattr(shared, field.name) is getattr(bench, field.name), field.name


def test_the_parts_of_a_batch_are_the_batch() -> None:
    for samples, ranks in itertools.product((2, 3, 7, 64), (1, 2, 3, 5)):
        batch = torch.randperm(samples)
        parts = [batch_part(batch, rank, ranks) for rank in range(ranks)]
        assert torch.equal(torch.cat(parts), batch), f"{samples} samples, {ranks} ranks"
        alone = [rank for rank, part in enumerate(parts) if len(part) == 1]
        assert alone == [], f"{samples} samples, {ranks} ranks: one sample has no batch statistics"


class ThreeInOne:
    """A crew of three, played by one process: it takes the first part and adds what the others would have."""

    def __init__(self, student: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.student, self.inputs, self.targets = student, inputs, targets

    def part(self, batch: Tensor) -> Tensor:
        self.batch = batch
        return batch_part(batch, 0, 3)

    def combine(self, student: nn.Module, told: Tensor) -> Tensor:
        for rank in (1, 2):
            part = batch_part(self.batch, rank, 3)
            if len(part) == 0:
                continue
            logits = student(self.inputs[part])
            weighed = distillation_loss(logits, self.targets[part]) * (len(part) / len(self.batch))
            weighed.backward()
            told = told + torch.stack([weighed.detach(), agreement(logits, self.targets[part])])[: len(told)]
        return told


def test_distilling_by_parts_equals_distilling_alone() -> None:
    torch.manual_seed(0)
    alone = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    together = copy.deepcopy(alone)
    inputs, targets = torch.randn(50, 6), torch.softmax(torch.randn(50, 4), dim=1)
    settings = MrTFSettings(refine_steps=30, refine_batch_size=16)
    told = [
        distill(student, inputs, targets, settings, torch.Generator().manual_seed(1), crew)
        for student, crew in ((alone, None), (together, ThreeInOne(together, inputs, targets)))
    ]
    assert told[1].steps == told[0].steps == 30
    assert told[1].loss == pytest.approx(told[0].loss, rel=1e-5)
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
