"""The parts of the MPI backend that need no second rank: buffers, placement, GPUs, threads."""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor, nn

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.mpi.placement import Placement
from mrtf_fedml.fedml_bridge.mpi.refinery import batch_part
from mrtf_fedml.fedml_bridge.mpi.transport import (
    ALIGNMENT,
    Parcel,
    pack,
    unpack,
)
from mrtf_fedml.process.gpus import chosen_gpu
from mrtf_fedml.process.start import Place, check_start
from mrtf_fedml.process.threads import set_threads
from mrtf_fedml.refinery.distill import distill, distillation_loss
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


def gpus(tmp_path: Path, mapping: object, ranks: int, visible: int, key: str = "mine") -> list[int | None]:
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump({"mine": mapping}))
    return [chosen_gpu(str(file), key, Place(rank, ranks, rank, ranks), visible) for rank in range(ranks)]


def test_fedmls_mapping_says_which_gpu_serves_which_rank(tmp_path: Path) -> None:
    assert gpus(tmp_path, {"one": [2, 1], "two": [0, 2]}, ranks=5, visible=2) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("mapping", "ranks", "visible", "key", "complaint"),
    [
        ({"one": [1, 1, 1]}, 3, 2, "mine", "uses 3 GPUs of 'one', which has 2"),
        ({"one": [3]}, 3, 0, "mine", "uses 1 GPUs of 'one', which has 0"),
        ({"one": [1, 1]}, 3, 2, "mine", "places 2 ranks, but mpirun started 3"),
        ({"one": [2, 2]}, 3, 2, "mine", "places 4 ranks, but mpirun started 3"),
        ({"one": [3]}, 3, 1, "yours", "has no mapping 'yours'"),
        ({"one": 3}, 3, 1, "mine", "must give each host a list"),
        ({"one": [-1, 4]}, 3, 2, "mine", "must give each host a list"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_by_every_rank(
    tmp_path: Path, mapping: object, ranks: int, visible: int, key: str, complaint: str
) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump({"mine": mapping}))
    for rank in range(ranks):
        with pytest.raises(UserError, match=complaint):
            chosen_gpu(str(file), key, Place(rank, ranks, rank, ranks), visible)


def test_without_a_mapping_ranks_are_spread_over_the_gpus_of_their_host() -> None:
    assert [chosen_gpu(None, None, Place(4 + rank, 8, rank, 4), visible=3) for rank in range(4)] == [0, 1, 2, 0]
    assert chosen_gpu(None, None, Place(1, 2, 1, 2), visible=0) is None


def test_threads_asked_for_by_the_environment_win(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert set_threads(3, default=2) == torch.get_num_threads() == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert set_threads(3, default=2) == torch.get_num_threads() == 3
        assert set_threads(None, default=2) == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_other_ways_of_running_are_not_our_business() -> None:
    check_start("cross_silo", "MPI", "server", ranks=1)
    check_start("simulation", "sp", "server", ranks=1)
    with pytest.raises(UserError, match="refine_on"):
        check_start("cross_silo", "GRPC", "ranks", ranks=1)


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

    def combine(self, student: nn.Module, loss: Tensor) -> Tensor:
        for rank in (1, 2):
            part = batch_part(self.batch, rank, 3)
            if len(part) == 0:
                continue
            weighed = distillation_loss(student(self.inputs[part]), self.targets[part]) * (len(part) / len(self.batch))
            weighed.backward()
            loss = loss + weighed.detach()
        return loss


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
    assert told[1] == pytest.approx(told[0], rel=1e-5)
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
