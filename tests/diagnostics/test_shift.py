"""Shift statistics: another kind of samples is distinguished from other class frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from mrtf_fedml.diagnostics.shift import (
    NeighbourStatistics,
    compare_with_neighbours,
    shifted_features,
    two_sample_auc,
    two_sample_auc_within_classes,
)

DRAW = np.random.default_rng(0)
CENTRES = DRAW.normal(size=(4, 6)) * 5


def draw_samples(classes: Any) -> Tensor:
    """One sample of each of these classes."""
    return torch.from_numpy(CENTRES[classes] + DRAW.normal(size=(len(classes), 6))).float()


LABELS = torch.arange(400) % 4
CLIENTS = draw_samples(LABELS.numpy())


def compare(server: Tensor, predicted: Tensor | None = None, clients: Tensor = CLIENTS) -> NeighbourStatistics:
    """The statistics against the clients' samples and their labels."""
    predicted = torch.zeros(len(server)).long() if predicted is None else predicted
    statistics = compare_with_neighbours(clients, LABELS[: len(clients)], server, predicted)
    assert statistics is not None
    return statistics


def is_novel(statistics: NeighbourStatistics) -> bool:
    return statistics.novel > statistics.expected_novel + statistics.novel_margin


def test_novel_fraction_is_high_for_new_kinds_and_not_for_frequent_classes() -> None:
    alike = draw_samples([0] * 200)
    assert not is_novel(compare(alike)), "one class alone is of the same kind"
    assert compare(-CLIENTS, LABELS).novel > 0.9
    assert compare(CLIENTS * 100, LABELS).novel > 0.9
    half = torch.cat([alike, draw_samples([1] * 200) + 20])
    assert 0.4 < compare(half).novel < 0.65, "half of them are of a class that no client has"
    constant = CLIENTS.clone()
    constant[:, 0] = 3.0
    assert compare(CLIENTS, LABELS, constant).novel > 0.9
    wide = torch.from_numpy(DRAW.normal(size=(100, 3, 20, 20))).float()
    assert compare(wide + 5, clients=wide).novel > 0.9
    fresh = torch.from_numpy(DRAW.normal(size=(100, 3, 20, 20))).float()
    assert not is_novel(compare(fresh, clients=wide)), "more numbers than samples"


def test_compare_with_neighbours_is_none_for_few_samples_and_indices() -> None:
    some = draw_samples([0] * 30)
    assert compare_with_neighbours(CLIENTS[:30], None, some, torch.zeros(30)) is None
    assert compare_with_neighbours(CLIENTS, None, some[:10], torch.zeros(10)) is None
    assert compare_with_neighbours(LABELS[:, None], LABELS, LABELS[:, None], LABELS) is None


def test_novel_fraction_is_high_for_permuted_columns() -> None:
    # Every column has the same mean and deviation; the first three say one thing, and so do the last three.
    def table(rows: int) -> Tensor:
        two = DRAW.normal(size=(rows, 2))
        return torch.from_numpy(two.repeat(3, axis=1) + 0.1 * DRAW.normal(size=(rows, 6))).float()

    known, other = table(400), table(200)
    assert not is_novel(compare(other, clients=known))
    assert compare(other[:, [0, 3, 1, 4, 2, 5]], clients=known).novel > 0.5


def test_novel_fraction_expects_more_from_a_widely_spread_class() -> None:
    spread = torch.tensor([1.0, 1.0, 1.0, 4.0])

    def samples(classes: Tensor) -> Tensor:
        rows = torch.from_numpy(
            CENTRES[classes.numpy()] + DRAW.normal(size=(len(classes), 6)) * spread[classes, None].numpy()
        )
        return rows.float()

    wide = torch.full((200,), 3)
    statistics = compare(samples(wide), wide, samples(LABELS))
    assert statistics.novel > 0.1
    assert not is_novel(statistics)


def test_wrong_labels_and_constant_samples_are_not_novel() -> None:
    other = draw_samples([0, 1, 2, 3] * 50)
    assert not any(is_novel(compare(other, torch.full((200,), label))) for label in range(4))
    same = torch.ones(100, 6)
    statistics = compare(same, clients=same)
    assert (statistics.novel, statistics.expected_novel) == (0, pytest.approx(0.05))
    assert statistics.novel_margin > 0


def test_agreement_falls_by_the_fraction_of_wrong_labels() -> None:
    classes = torch.arange(200) % 4
    other = draw_samples(classes.numpy())
    right, wrong = compare(other, classes), compare(other, torch.where(classes == 0, 1, classes))
    assert right.agreement == pytest.approx(right.expected_agreement, abs=0.05)
    assert wrong.expected_agreement == pytest.approx(1, abs=0.05)
    assert wrong.agreement == pytest.approx(0.75, abs=0.05)
    unlabelled = compare_with_neighbours(CLIENTS, None, other, classes)
    assert unlabelled is not None
    assert unlabelled.agreement is None, "samples that bear many labels each"


def test_duplicates_do_not_reduce_the_margin() -> None:
    once = draw_samples([0] * 25)
    assert compare(once.repeat(8, 1)).novel_margin == compare(once).novel_margin


def test_shifted_fraction_is_zero_for_any_mixture_of_classes() -> None:
    table = load_breast_cancer()
    samples = torch.from_numpy(StandardScaler().fit_transform(table.data)).float()
    labels = torch.from_numpy(table.target)
    known, other = (samples[:400], labels[:400]), (samples[400:], labels[400:])
    assert compare_with_neighbours(*known, *other).shifted == 0
    for label in (0, 1):
        alone = other[1] == label
        assert compare_with_neighbours(*known, other[0][alone], other[1][alone]).shifted == 0, "one class alone"
    assert compare_with_neighbours(*known, other[0] + 1.5, other[1]).shifted > 0.5


ROWS = np.random.default_rng(0).normal(size=(400, 5))
CLASSES = np.arange(400) % 2
#: Two classes that lie far apart.
ROWS[CLASSES == 1] += 5
OWN, OWN_CLASSES = ROWS[:200], CLASSES[:200]
OTHER, OTHER_CLASSES = ROWS[200:], CLASSES[200:]


def auc(other: Any, predicted: Any) -> float | None:
    return two_sample_auc_within_classes(OWN, OWN_CLASSES, other, predicted)


def test_auc_within_classes_ignores_class_frequencies() -> None:
    alike = auc(OTHER, OTHER_CLASSES)
    assert alike is not None
    assert alike < 0.7
    one_class = auc(OTHER[OTHER_CLASSES == 1], OTHER_CLASSES[OTHER_CLASSES == 1])
    assert one_class is not None
    assert one_class < 0.7, "as they are, the sets differ much: the clients have both classes"
    wrong = auc(OTHER, 1 - OTHER_CLASSES)
    assert wrong is not None
    assert wrong < 0.7, "within the given classes the sets differ much: the labels are wrong"


def test_auc_within_classes_is_high_for_another_kind() -> None:
    area = auc(OTHER + np.array([4, -4, 0, 0, 0]), OTHER_CLASSES)
    assert area is not None
    assert area > 0.95


def test_auc_within_classes_is_none_without_enough_samples() -> None:
    assert auc(OTHER, OTHER_CLASSES + 7) is None, "no class in common"
    assert auc(np.repeat(OTHER[:10], 20, axis=0), np.repeat(OTHER_CLASSES[:10], 20)) is None, "ten samples, repeated"
    assert auc(OTHER * 1e200, OTHER_CLASSES) is None, "numbers without squares"
    same = np.zeros((40, 5))
    assert two_sample_auc_within_classes(same, CLASSES[:40], same, CLASSES[:40]) is None


def test_two_sample_auc_is_high_only_for_different_sets() -> None:
    draw = np.random.default_rng(0)
    one, same = (torch.from_numpy(draw.normal(size=(300, 5))).float() for _ in range(2))
    moved, wider = same + torch.tensor([0.0, 3.0, 0.0, 0.0, 0.0]), same * 3
    assert 0.35 < two_sample_auc(one, same) < 0.65
    assert two_sample_auc(one, moved) > 0.9
    assert two_sample_auc(one, wider) > 0.9
    assert two_sample_auc(one[:10], same) is None, "too few samples"
    assert [name for name, _ in shifted_features(one, moved, list("abcde"))] == ["b"]
    assert shifted_features(one, same, None) == []
