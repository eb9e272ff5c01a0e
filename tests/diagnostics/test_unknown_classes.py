"""The server's samples compared with the clients' by counts in cells of the input space."""

from __future__ import annotations

from dataclasses import replace

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


def report(server: Tensor, inputs: Tensor, labels: Tensor) -> EvaluationCounts:
    """What a client with these samples reports."""
    cells = InputCells.fit(server, classes=8)
    assert cells is not None
    counts, features = cells.count([(inputs, labels)], classes=8)
    return replace(EvaluationCounts.zeros(8), cells=counts, features=features)


def compare(server: Tensor, labels: Tensor | None = None, seed: int = 0) -> CellComparison:
    """The server's samples, with these labels, compared with those of five clients."""
    reports = {client: report(server, *draw(KNOWN, 120, 1000 * seed + client)) for client in range(5)}
    labels = torch.zeros(len(server), dtype=torch.int64) if labels is None else labels
    compared = compare_samples(reports, server, labels)
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
        compared = compare(*draw(classes, 300, 600 + seed), seed=seed)
        assert compared.describe_shift() is None
        assert compared.is_unknown.double().mean() < 0.02
        assert warn_shift(compared) is None
        assert (compared.most_correct or 1.0) > 0.95


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
    server, labels = draw(KNOWN, 100, 800)
    assert compare_samples({}, server, labels) is None
    assert compare_samples({0: EvaluationCounts.zeros(8)}, server, labels) is None
    assert compare_samples({0: report(server, *draw(KNOWN, 10, 801))}, server, labels) is None


def test_one_client_that_claims_many_samples_does_not_hide_an_unknown_class() -> None:
    server = torch.cat([draw(KNOWN, 300, 901)[0], draw([6, 7], 60, 902)[0]])
    labels = torch.zeros(len(server), dtype=torch.int64)
    lying = report(server, server, labels)
    lying = replace(lying, cells=1000 * lying.cells, features=1000 * lying.features)
    reports = {client: report(server, *draw(KNOWN, 120, client)) for client in range(6)}
    compared = compare_samples({**reports, 6: lying}, server, labels)
    assert compared is not None
    assert compared.excess[0] > 0, "its weight is bounded"


@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
def test_labels_that_do_not_fit_the_features_bound_the_accuracy(wrong: float) -> None:
    server, labels = draw(KNOWN, 400, 950)
    is_wrong = torch.rand(400, generator=torch.Generator().manual_seed(3)) < wrong
    given = torch.where(is_wrong, labels[torch.randperm(400, generator=torch.Generator().manual_seed(4))], labels)
    most = compare(server, given).most_correct
    assert most is not None
    right = float((given == labels).double().mean())
    assert right - 0.05 < most < right + 0.2


def test_copies_of_features_do_not_bound_the_accuracy_of_right_labels() -> None:
    """Few samples differ from the clients' by chance, in all copies of a feature at once."""

    def with_copies(inputs: Tensor, labels: Tensor, seed: int) -> Tensor:
        copies = (inputs - 0.6 * MEANS[labels])[:, :4].repeat(1, 60)
        return copies + 0.1 * torch.randn(copies.shape, generator=torch.Generator().manual_seed(seed))

    for seed in range(8):
        server, labels = draw(KNOWN, 60, 970 + seed)
        server = with_copies(server, labels, seed)
        reports = {}
        for client in range(3):
            inputs, own = draw(KNOWN, 120, 100 * seed + client)
            reports[client] = report(server, with_copies(inputs, own, 1000 + client), own)
        compared = compare_samples(reports, server, labels)
        assert compared is not None
        assert compared.most_correct is not None
        assert compared.most_correct > 0.9


@pytest.mark.parametrize("is_label_on_server", [True, False])
@pytest.mark.parametrize(
    ("distance", "noise_columns"), [(1.0, 0), (0.3, 0), (1.0, 200)], ids=["strong", "weak features", "wide table"]
)
def test_feature_that_is_the_label_at_clients_alone_is_a_shift(
    is_label_on_server: bool, distance: float, noise_columns: int
) -> None:
    """A model that follows this column is right on all of the clients' held-out samples."""

    def with_column(inputs: Tensor, labels: Tensor, column: Tensor) -> Tensor:
        # As `draw`, with class means that are closer to each other.
        noise = torch.randn(len(inputs), noise_columns, generator=torch.Generator().manual_seed(int(labels.sum())))
        return torch.cat([inputs - (1 - distance) * MEANS[labels], noise, column[:, None].float()], dim=1)

    for seed in range(5):
        server, labels = draw(KNOWN, 400, 960 + seed)
        noise = labels[torch.randperm(400, generator=torch.Generator().manual_seed(seed))]
        column = labels if is_label_on_server else noise
        server = with_column(server, labels, column)
        reports = {}
        for client in range(5):
            inputs, own = draw(KNOWN, 120, 100 * seed + client)
            reports[client] = report(server, with_column(inputs, own, own), own)
        compared = compare_samples(reports, server, column)
        assert compared is not None
        assert compared.agreement is not None
        assert (compared.agreement < 0.6) is not is_label_on_server
        assert (compared.describe_shift() is None) is is_label_on_server


def test_feature_that_determines_the_class_agrees_where_the_server_has_two_of_six_classes() -> None:
    """The clients have four other classes, in which the first feature and the others have opposite signs."""
    first = torch.tensor([-4.0, 4, -4, -4, 4, 4, 0, 0])
    others = torch.tensor([3.0, -3, -3, -3, 3, 3, 0, 0])

    def with_features(inputs: Tensor, labels: Tensor) -> Tensor:
        noise = inputs - MEANS[labels]
        return noise + torch.cat([first[labels, None], others[labels, None].expand(-1, 11)], dim=1)

    for seed in range(5):
        server, labels = draw([0, 1], 300, 980 + seed)
        server = with_features(server, labels)
        reports = {}
        for client in range(5):
            inputs, own = draw(KNOWN, 120, 100 * seed + client)
            reports[client] = report(server, with_features(inputs, own), own)
        compared = compare_samples(reports, server, labels)
        assert compared is not None
        assert compared.agreement is not None
        assert compared.agreement > 0.6


def test_agreement_needs_a_feature_that_determines_the_class() -> None:
    generator = torch.Generator().manual_seed(6)
    server = torch.randn(300, 12, generator=generator)
    reports = {0: report(server, torch.randn(300, 12, generator=generator), draw(KNOWN, 300, 1)[1])}
    compared = compare_samples(reports, server, torch.zeros(300, dtype=torch.int64))
    assert compared is not None
    assert compared.agreement is None
