"""The server's samples compared with the clients' by counts in cells of the input space."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mrtf_fedml.algorithms.evaluation import EvaluationCounts
from mrtf_fedml.algorithms.input_cells import InputCells
from mrtf_fedml.diagnostics.unknown_classes import CellComparison, compare_samples, note_unknown, warn_shift

#: Of eight classes.
MEANS = 1.5 * torch.randn(8, 12, generator=torch.Generator().manual_seed(9))
#: Those that the clients have.
KNOWN = [0, 1, 2, 3, 4, 5]


def draw(classes: list[int], samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples [samples, 12] of these classes, which have different means, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes)[torch.randint(len(classes), (samples,), generator=generator)]
    return MEANS[labels] + torch.randn(samples, 12, generator=generator), labels


def compare(server: Tensor, clients: int = 5, samples: int = 120, seed: int = 0) -> CellComparison:
    cells, evaluations = InputCells.fit(server), {}
    assert cells is not None
    for client in range(clients):
        zeros = EvaluationCounts.zeros(8)
        counts = cells.count([draw(KNOWN, samples, 1000 * seed + client)], classes=8)
        evaluations[client] = EvaluationCounts(zeros.confusion, zeros.confidence, zeros.true_class, counts)
    compared = compare_samples(evaluations, server)
    assert compared is not None
    return compared


def test_samples_of_a_class_that_no_client_has_are_found() -> None:
    server = torch.cat([draw(KNOWN, 300, 501)[0], draw([6, 7], 60, 502)[0]])
    compared = compare(server)
    assert compared.is_unknown[300:].double().mean() > 0.8
    assert compared.is_unknown[:300].double().mean() < 0.05
    assert "look like no class" in (compared.describe_shift() or "")
    assert "unknown" in (note_unknown(compared) or "")


@pytest.mark.parametrize("classes", [KNOWN, [0, 1]], ids=["all classes", "two classes"])
def test_samples_of_the_clients_classes_in_any_frequencies_are_not_shifted(classes: list[int]) -> None:
    for seed in range(6):
        compared = compare(draw(classes, 300, 600 + seed)[0], seed=seed)
        assert compared.describe_shift() is None
        assert compared.is_unknown.double().mean() < 0.02
        assert warn_shift(compared) is None


@pytest.mark.parametrize("change", ["moved", "scaled", "noise", "permuted"])
def test_changed_features_are_a_shift(change: str) -> None:
    server, _ = draw(KNOWN, 300, 700)
    changed = {
        "moved": server + 1.0,
        "scaled": 0.5 * server,
        "noise": server + 2 * torch.randn(server.shape, generator=torch.Generator().manual_seed(1)),
        "permuted": server[:, torch.randperm(12, generator=torch.Generator().manual_seed(2))],
    }[change]
    compared = compare(changed)
    assert compared.describe_shift() is not None
    assert "unchecked" in (warn_shift(compared) or "")


def test_nothing_is_compared_without_counts_of_clients() -> None:
    server, _ = draw(KNOWN, 100, 800)
    assert compare_samples({}, server) is None
    assert compare_samples({0: EvaluationCounts.zeros(8)}, server) is None
    few = InputCells.fit(server)
    assert few is not None
    counts = few.count([draw(KNOWN, 10, 801)], classes=8)
    zeros = EvaluationCounts.zeros(8)
    evaluation = EvaluationCounts(zeros.confusion, zeros.confidence, zeros.true_class, counts)
    assert compare_samples({0: evaluation}, server) is None


def test_one_client_that_claims_many_samples_does_not_hide_an_unknown_class() -> None:
    server = torch.cat([draw(KNOWN, 300, 901)[0], draw([6, 7], 60, 902)[0]])
    cells, zeros = InputCells.fit(server), EvaluationCounts.zeros(8)
    assert cells is not None
    honest = [cells.count([draw(KNOWN, 120, client)], classes=8) for client in range(6)]
    lying = 1000 * cells.count([(server, torch.zeros(len(server), dtype=torch.int64))], classes=8)
    evaluations = {
        client: EvaluationCounts(zeros.confusion, zeros.confidence, zeros.true_class, counts)
        for client, counts in enumerate([*honest, lying])
    }
    compared = compare_samples(evaluations, server)
    assert compared is not None
    assert compared.excess[0] > 0, "its weight is bounded"
