"""Whether the server's samples are of the clients' kind, whatever classes either has more of."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrtf_fedml.data.likeness import told_apart_within_classes

ROWS = np.random.default_rng(0).normal(size=(400, 5))
CLASSES = np.arange(400) % 2
#: Two classes that lie far apart.
ROWS[CLASSES == 1] += 5
OWN, OWN_CLASSES = ROWS[:200], CLASSES[:200]
OTHER, OTHER_CLASSES = ROWS[200:], CLASSES[200:]


def told(other: Any, given: Any) -> float | None:
    return told_apart_within_classes(OWN, OWN_CLASSES, other, given)


def test_classes_alone_tell_nothing_apart() -> None:
    alike = told(OTHER, OTHER_CLASSES)
    assert alike is not None
    assert alike < 0.7
    one_class = told(OTHER[OTHER_CLASSES == 1], OTHER_CLASSES[OTHER_CLASSES == 1])
    assert one_class is not None
    assert one_class < 0.7, "as they are, the sets differ much: the clients have both classes"
    wrong = told(OTHER, 1 - OTHER_CLASSES)
    assert wrong is not None
    assert wrong < 0.7, "within the given classes the sets differ much: the labels are wrong"


def test_another_kind_is_told_apart() -> None:
    area = told(OTHER + np.array([4, -4, 0, 0, 0]), OTHER_CLASSES)
    assert area is not None
    assert area > 0.95


def test_where_nothing_can_be_told() -> None:
    assert told(OTHER, OTHER_CLASSES + 7) is None, "no class in common"
    assert told(np.repeat(OTHER[:10], 20, axis=0), np.repeat(OTHER_CLASSES[:10], 20)) is None, "ten samples, repeated"
    assert told(OTHER * 1e200, OTHER_CLASSES) is None, "numbers without squares"
    same = np.zeros((40, 5))
    assert told_apart_within_classes(same, CLASSES[:40], same, CLASSES[:40]) is None
