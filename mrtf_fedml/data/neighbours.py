"""What the clients' nearest samples say of the server's: whether these are of their kind, and bear their labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from .likeness import FEWEST, Labels, Rows, few, told_apart_within_classes
from .moved import moved_features

#: Samples of more numbers are projected before distances are taken.
_WIDEST = 512
#: A known sample is usual up to this quantile of the distances to a nearest neighbour.
_USUAL = 0.95
#: So much of the mean variance is added to every direction before all are made equal: less is noise.
_FLOOR = 0.05
#: Shares are chance within so many standard errors.
_ERRORS = 4.0


@dataclass(frozen=True)
class Nearness:
    """The server's samples beside their nearest neighbours among the clients'.

    Attributes:
        novel: the share of the server's samples that lie farther from all known ones than known ones from each other.
        usual: the share to be expected: 0.05, or more where known samples of the same classes have more.
        chance: by how much the two differ by chance.
        agreeing: the share of the given labels that the nearest known sample bears too; None where that is not known.
        expected: how often it does so among known samples of the same classes.
        moved: the share of a table's features whose mean no mixture of the clients' classes could have.
        apart: how well samples of the same class are told to be the server's or the clients', 0.5 by guessing; None
            where that is not known.
    """

    novel: float
    usual: float
    chance: float
    agreeing: float | None = None
    expected: float | None = None
    moved: float = 0.0
    apart: float | None = None


def nearness(known: Tensor, labels: Tensor | None, other: Tensor, given: Tensor) -> Nearness | None:
    """How near the server's samples are to the clients'. None where there are too few samples, or they are indices.

    Half of the known samples are asked as the others are, so that both look for a neighbour among the same. What is
    expected is weighed by the classes that are given: a server may have more of a class that lies widely spread.
    Columns in another order may keep each feature's spread and break what belongs together, so distances are taken
    twice: as the features are scaled, and with their correlations taken out.

    Args:
        known: of the clients, [N, ...].
        labels: theirs, [N]; None where there is not one per sample.
        other: the server's, [M, ...].
        given: the labels that these got, [M].
    """
    if min(len(known) // 2, len(other)) < FEWEST or not known.is_floating_point():
        return None
    theirs, got = few(other), _whole(given)
    ours = few(known.cpu())
    bears = None if labels is None or labels.ndim != 1 else _whole(labels)
    if bears is None or len(given) != len(other):
        bears, got = np.zeros(len(ours), np.int64), np.zeros(len(theirs), np.int64)
    # By lot: samples may stand in turn by class.
    among, asked = np.array_split(np.random.default_rng(0).permutation(len(ours)), 2)
    spaces = _spaces(ours[among], ours[asked], theirs, known.ndim == 2)
    spaces_seen = [_seen_in(*rows, bears[among], bears[asked], got) for rows in spaces]
    farthest = max(spaces_seen, key=lambda one: one.novel - one.usual)
    # The space in which neighbours tell more of the classes is the better witness.
    witness = max(spaces_seen, key=lambda one: one.expected or 0.0)
    alone = len(np.unique(bears)) < 2
    return Nearness(
        farthest.novel,
        farthest.usual,
        farthest.chance,
        None if alone else witness.agreeing,
        None if alone else witness.expected,
        0.0 if alone or known.ndim != 2 else moved_features(ours, bears, theirs),
        None if alone else told_apart_within_classes(ours, bears, theirs, got),
    )


def _spaces(among: Rows, asked: Rows, theirs: Rows, is_table: bool) -> Iterator[tuple[Rows, Rows, Rows]]:
    """The same samples as distances are taken between; those that are asked have no part in how."""
    mean, deviation = among.mean(axis=0), among.std(axis=0)
    # A feature that is constant among the known is one in which any other value is new.
    scale = np.where(deviation > 1e-6, deviation, 1.0) if is_table else max(float(deviation.mean()), 1e-6)
    among, asked, theirs = (_narrow((rows - mean) / scale) for rows in (among, asked, theirs))
    yield among, asked, theirs
    variances, directions = np.linalg.eigh(among.T @ among / len(among))
    # Where all are constant there is nothing to make equal.
    equal = directions / np.sqrt(np.maximum(variances, 0) + max(_FLOOR * float(variances.mean()), 1e-12))
    yield among @ equal, asked @ equal, theirs @ equal


def _seen_in(among: Rows, asked: Rows, theirs: Rows, bears_among: Labels, bears_asked: Labels, got: Labels) -> Nearness:
    distance, place = _nearest(asked, among)
    far = distance > np.quantile(distance, _USUAL)
    distance_of_theirs, place_of_theirs = _nearest(theirs, among)
    novel = distance_of_theirs > np.quantile(distance, _USUAL)
    # Labels that are wrong shall make nothing strange: no fewer than of all classes together.
    usual = max(1 - _USUAL, _as_frequent(far, bears_asked, got))
    # A sample that stands there twice says nothing new.
    distinct = len(np.unique(theirs, axis=0))
    spread = usual * (1 / len(asked) + 1 / distinct)
    return Nearness(
        float(novel.mean()),
        usual,
        _ERRORS * math.sqrt(spread),
        float((bears_among[place_of_theirs] == got).mean()),
        _as_frequent(bears_among[place] == bears_asked, bears_asked, got),
    )


def _as_frequent(so: npt.NDArray[np.bool_], classes: Labels, wanted: Labels) -> float:
    """The share of samples that are so, with the classes as frequent as in `wanted`."""
    shares = {label: float(so[classes == label].mean()) for label in np.unique(classes)}
    whole = float(so.mean())
    return float(np.mean([shares.get(label, whole) for label in wanted]))


def _whole(labels: Tensor) -> Labels:
    return few(labels[:, None]).ravel().astype(np.int64)


def _nearest(points: Rows, among: Rows) -> tuple[Rows, Labels]:
    """The distance to the nearest, and which that is."""
    squares = (points**2).sum(axis=1)[:, None] + (among**2).sum(axis=1)[None] - 2 * points @ among.T
    return np.sqrt(np.maximum(squares.min(axis=1), 0)), squares.argmin(axis=1)


def _narrow(rows: Rows) -> Rows:
    """Wide samples by a random projection, which keeps distances."""
    if rows.shape[1] <= _WIDEST:
        return rows
    projection = np.random.default_rng(0).normal(size=(rows.shape[1], _WIDEST)) / np.sqrt(_WIDEST)
    return rows @ projection
