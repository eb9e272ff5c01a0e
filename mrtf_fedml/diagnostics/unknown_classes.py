"""Samples of the server that look like no class of any client, and whether its samples differ from the clients' at all.

Server and clients have counted their samples in cells of the input space (`algorithms/input_cells.py`), the clients by
class. If the server's samples are of the clients' classes, in whatever frequencies, the counts of each division are a
mixture of the classes' counts:

    E[s_j] = n sum_c q_c p_cj,

s_j the server's samples in cell j, n their number, p_cj the fraction of class c's samples in cell j, q the server's
class frequencies, which expectation maximisation finds. A sample in a cell with more samples than the mixture explains
is of no known class with the probability 1 - E[s_j] / s_j. docs/lab/estimates.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..algorithms.evaluation import EvaluationCounts, weight_caps
from ..algorithms.input_cells import MIN_SAMPLES, InputCells

Array = npt.NDArray[np.float64]

#: Each class gets so many samples that are distributed as all classes together.
_PRIOR_SAMPLES = 2.0
_EM_STEPS = 100
#: A sample is of no known class if that is more probable than not, and if the counts of all samples together differ by
#: so many standard deviations. Without lost classes it was 0.6 at most, with lost ones 1.4 at least.
_UNKNOWN, _LEAST_DEVIATIONS = 0.5, 1.0
#: The samples differ if so large a fraction is of no known class, ...
_UNKNOWN_SHARE = 0.05
#: ... or if the total variation distance to the mixture exceeds what chance explains by so much, and by so many
#: standard deviations: of the cells, and of the distances to the mean, which change more with the class frequencies.
_LIMITS = {"kind": (0.03, 2.0), "distance to their mean": (0.1, 3.0)}


@dataclass(frozen=True, eq=False)
class CellComparison:
    """The server's counts compared with those that a mixture of the clients' classes explains.

    Attributes:
        probability_known: that a sample of the server is of a client's class, [M].
        excess: the total variation distance beyond chance, of the cells and of the distances to the mean.
        deviations: the same in standard deviations.
    """

    probability_known: Tensor
    excess: tuple[float, float]
    deviations: tuple[float, float]

    @property
    def is_unknown(self) -> Tensor:
        """Which samples look like no class of any client, [M]."""
        return (self.probability_known < _UNKNOWN) & (self.deviations[0] > _LEAST_DEVIATIONS)

    def describe_shift(self) -> str | None:
        """How the server's samples differ from the clients'; None if they do not."""
        share = float(self.is_unknown.double().mean())
        if share > _UNKNOWN_SHARE:
            return f"{share:.0%} look like no class that a client has"
        for (what, (least, errors)), excess, deviations in zip(
            _LIMITS.items(), self.excess, self.deviations, strict=True
        ):
            if excess > least and deviations > errors:
                return f"{excess:.0%} more than chance and class frequencies explain are of another {what}"
        return None


def compare_samples(evaluations: Mapping[int, EvaluationCounts], inputs: Tensor) -> CellComparison | None:
    """Compare the server's samples [M, ...] with those that clients have counted in cells.

    None where clients have counted none, or fewer than `MIN_SAMPLES`.
    """
    counted = [each.cells for each in evaluations.values() if each.cells.numel()]
    divisions = InputCells.fit(inputs) if counted else None
    return None if divisions is None else compare_cells(counted, divisions.assign(inputs))


def compare_cells(counted: Sequence[Tensor], cells: Tensor) -> CellComparison | None:
    """Compare the cells [M, divisions] of the server's samples with each client's counts [divisions, C, K]."""
    caps = weight_caps([int(each[0].sum()) for each in counted])
    clients = np.asarray(sum(cap * each.double().numpy() for cap, each in zip(caps, counted, strict=True)))
    clients = clients[:, clients[0].sum(axis=1) > 0]
    if clients[:1].sum() < MIN_SAMPLES:
        return None
    size = clients.shape[2]
    server = np.stack([np.bincount(column, minlength=size) for column in cells.T.numpy()]).astype(np.float64)
    shares = clients.sum(axis=1, keepdims=True) / clients.sum(axis=(1, 2), keepdims=True)
    samples = clients.sum(axis=2, keepdims=True)
    # [divisions, C, K]
    conditional = (clients + _PRIOR_SAMPLES * shares) / (samples + _PRIOR_SAMPLES)
    frequencies = _class_frequencies(server[:-1], conditional[:-1])
    fit = np.einsum("c,dcj->dj", frequencies, conditional)
    total = float(len(cells))
    variance = np.maximum(fit * (1 - fit), 0.0) / total
    variance += np.einsum("c,dcj->dj", frequencies**2, conditional * (1 - conditional) / (samples + _PRIOR_SAMPLES))
    # The mean and the deviation of a sum of absolute normal errors.
    distance = np.abs(server / total - fit).sum(axis=1) / 2
    excess = distance - math.sqrt(2 / math.pi) * np.sqrt(variance).sum(axis=1) / 2
    deviation = np.sqrt((1 - 2 / math.pi) * variance.sum(axis=1)) / 2
    ratio = np.minimum(1.0, (fit * total + 0.5) / (server + 0.5))
    known = np.mean([ratio[index][column] for index, column in enumerate(cells.T[:-1].numpy())], axis=0)
    deviations = excess / np.maximum(deviation, 1e-12)
    return CellComparison(
        torch.from_numpy(known),
        (float(excess[:-1].mean()), float(excess[-1])),
        (float(deviations[:-1].mean()), float(deviations[-1])),
    )


def _class_frequencies(server: Array, conditional: Array) -> Array:
    """The class frequencies [C] with which the classes' distributions [divisions, C, K] explain the counts best."""
    frequencies = np.full(conditional.shape[1], 1 / conditional.shape[1])
    for _ in range(_EM_STEPS):
        expected = np.einsum("c,dcj->dj", frequencies, conditional)
        frequencies = frequencies * np.einsum("dcj,dj->c", conditional, server / np.maximum(expected, 1e-300))
        frequencies = frequencies / frequencies.sum()
    return np.asarray(frequencies)


def warn_shift(compared: CellComparison | None) -> str | None:
    """A warning if the server's samples differ from the clients'."""
    shift = None if compared is None else compared.describe_shift()
    if shift is None:
        return None
    return (
        f"the server's samples differ from the clients' ({shift}): check how they were recorded, and do not use these "
        "labels unchecked"
    )


def note_unknown(compared: CellComparison | None) -> str | None:
    """A note on samples that look like no class of any client."""
    if compared is None or not bool(compared.is_unknown.any()):
        return None
    return (
        f"{int(compared.is_unknown.sum())} of the {len(compared.is_unknown)} samples look like no class that a client "
        "has (decision `unknown` in predictions.csv); look at them first"
    )
