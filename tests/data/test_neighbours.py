"""The server's samples beside the clients' nearest: another kind is told from more of one class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from mrtf_fedml.data.neighbours import Nearness, nearness

DRAW = np.random.default_rng(0)
CENTRES = DRAW.normal(size=(4, 6)) * 5


def drawn(classes: Any) -> Tensor:
    """A sample of each of these classes."""
    return torch.from_numpy(CENTRES[classes] + DRAW.normal(size=(len(classes), 6))).float()


LABELS = torch.arange(400) % 4
KNOWN = drawn(LABELS.numpy())


def near(other: Tensor, given: Tensor | None = None, known: Tensor = KNOWN) -> Nearness:
    """Beside the known samples and their labels."""
    labels = LABELS[: len(known)]
    found = nearness(known, labels, other, torch.zeros(len(other)).long() if given is None else given)
    assert found is not None
    return found


def is_strange(found: Nearness) -> bool:
    return found.novel > found.usual + found.chance


def test_what_is_new_is_told_from_what_is_only_more_frequent() -> None:
    alike = drawn([0] * 200)
    assert not is_strange(near(alike)), "one class alone is of the same kind"
    assert near(-KNOWN, LABELS).novel > 0.9
    assert near(KNOWN * 100, LABELS).novel > 0.9
    half = torch.cat([alike, drawn([1] * 200) + 20])
    assert 0.4 < near(half).novel < 0.65, "half of them are of a class that nobody knows"
    constant = KNOWN.clone()
    constant[:, 0] = 3.0
    assert near(KNOWN, LABELS, constant).novel > 0.9
    wide = torch.from_numpy(DRAW.normal(size=(100, 3, 20, 20))).float()
    assert near(wide + 5, known=wide).novel > 0.9
    fresh = torch.from_numpy(DRAW.normal(size=(100, 3, 20, 20))).float()
    assert not is_strange(near(fresh, known=wide)), "more numbers than samples"


def test_of_too_few_samples_and_of_indices_nothing_is_told() -> None:
    some = drawn([0] * 30)
    assert nearness(KNOWN[:30], None, some, torch.zeros(30)) is None
    assert nearness(KNOWN, None, some[:10], torch.zeros(10)) is None
    assert nearness(LABELS[:, None], LABELS, LABELS[:, None], LABELS) is None


def test_columns_in_another_order_break_what_belongs_together() -> None:
    # Every column has the same mean and deviation; the first three say one thing, and so do the last three.
    def table(rows: int) -> Tensor:
        two = DRAW.normal(size=(rows, 2))
        return torch.from_numpy(two.repeat(3, axis=1) + 0.1 * DRAW.normal(size=(rows, 6))).float()

    known, other = table(400), table(200)
    assert not is_strange(near(other, known=known))
    assert near(other[:, [0, 3, 1, 4, 2, 5]], known=known).novel > 0.5


def test_a_class_that_lies_widely_spread_is_no_news() -> None:
    spread = torch.tensor([1.0, 1.0, 1.0, 4.0])

    def samples(classes: Tensor) -> Tensor:
        rows = torch.from_numpy(
            CENTRES[classes.numpy()] + DRAW.normal(size=(len(classes), 6)) * spread[classes, None].numpy()
        )
        return rows.float()

    wide = torch.full((200,), 3)
    found = near(samples(wide), wide, samples(LABELS))
    assert found.novel > 0.1
    assert not is_strange(found)


def test_wrong_labels_and_constant_samples_make_nothing_strange() -> None:
    other = drawn([0, 1, 2, 3] * 50)
    assert not any(is_strange(near(other, torch.full((200,), label))) for label in range(4))
    same = torch.ones(100, 6)
    found = near(same, known=same)
    assert (found.novel, found.usual) == (0, pytest.approx(0.05))
    assert found.chance > 0


def test_labels_that_the_neighbours_bear_and_others() -> None:
    classes = torch.arange(200) % 4
    other = drawn(classes.numpy())
    right, wrong = near(other, classes), near(other, torch.where(classes == 0, 1, classes))
    assert right.agreeing == pytest.approx(right.expected, abs=0.05)
    assert wrong.expected == pytest.approx(1, abs=0.05)
    assert wrong.agreeing == pytest.approx(0.75, abs=0.05)
    unlabelled = nearness(KNOWN, None, other, classes)
    assert unlabelled is not None
    assert unlabelled.agreeing is None, "samples that bear many labels each"


def test_samples_that_stand_there_twice_say_nothing_new() -> None:
    once = drawn([0] * 25)
    assert near(once.repeat(8, 1)).chance == near(once).chance


def test_features_that_no_mixture_of_classes_explains_have_moved() -> None:
    table = load_breast_cancer()
    samples = torch.from_numpy(StandardScaler().fit_transform(table.data)).float()
    labels = torch.from_numpy(table.target)
    known, other = (samples[:400], labels[:400]), (samples[400:], labels[400:])
    assert nearness(*known, *other).moved == 0
    for label in (0, 1):
        alone = other[1] == label
        assert nearness(*known, other[0][alone], other[1][alone]).moved == 0, "one class alone"
    assert nearness(*known, other[0] + 1.5, other[1]).moved > 0.5
