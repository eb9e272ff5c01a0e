"""Samples of the server that look like no class of any client, and whether its samples differ from the clients' at all.

Server and clients have counted their samples in cells of the input space (`algorithms/input_cells.py`), the clients by
class. If the server's samples are of the clients' classes, in whatever frequencies, the counts of each division are a
mixture of the classes' counts:

    E[s_j] = n sum_c q_c p_cj,

s_j the server's samples in cell j, n their number, p_cj the fraction of class c's samples in cell j, q the server's
class frequencies, which expectation maximisation finds. A sample in a cell with more samples than the mixture explains
is of no known class with the probability 1 - E[s_j] / s_j.

Counts of single features show whether the labels are those of the clients. Among samples with the label c, bin b of a
feature has the fraction of class c's samples if the labels are right, and that of all samples if the labels have
nothing to do with the feature. With w the frequencies of the labels, g_cb = p_cb - sum_c w_c p_cb of the clients'
classes and o_cb the same of the server's labels,

    beta = sum w_c g_cb o_cb / sum w_c g_cb^2

over all bins and features is 1 for right labels and 0 for such that are right by chance only, in the fraction sum w_c^2
of the cases. So beta + (1 - beta) sum w_c^2 are right, or fewer: errors that resemble the predicted class make beta
larger.

A model may rely on one feature that determines the class at the clients and means nothing on the server, such as a
number that was assigned by class. Its bin b makes class c probable with P(c | b), by Bayes' rule with the frequencies
q, so that another feature is expected to have the fraction sum_c P(c | b) p_cj of its bin j among these samples. With w
the frequencies of the bins b, e_bj these fractions less their mean over the bins and o_bj the same of the server's
samples,

    agreement = sum w_b e_bj o_bj / sum w_b e_bj^2

over all other features is 1 where the class explains how features depend on each other, mostly larger where they also
do within a class, and 0 for a feature that means nothing. docs/lab/estimates.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..algorithms.evaluation import EvaluationCounts, weight_caps
from ..algorithms.input_cells import MIN_SAMPLES, InputCells

Array = npt.NDArray[np.float64]

#: The file of a run directory with the cells in which samples of no client's class were found.
CELLS_FILE = "cells.safetensors"
#: Each class gets so many samples that are distributed as all classes together.
_PRIOR_SAMPLES = 2.0
_EM_STEPS = 100
#: A sample is of no known class if that is more probable than not, and if the counts of all samples together differ by
#: so many standard deviations. Without lost classes it was 0.6 at most, with lost ones 1.4 at least.
_UNKNOWN, _LEAST_DEVIATIONS = 0.5, 1.0
#: A class counts in the comparison of labels if clients have so many samples of it, and the server so many labels.
_CLASS_SAMPLES, _CLASS_LABELS = 5, 3
#: A feature is informative if its class differences exceed so many times their variance by chance.
_INFORMATIVE = 3.0
#: Standard errors that are added to beta.
_BETA_ERRORS = 2.0
#: A feature determines the class if Pearson's chi square of its bins and the classes, divided by the number of samples,
#: is at least this. It is 3 at most, or C - 1.
_DETERMINES = 0.5
#: The other features contradict it if their agreement, with so many standard errors, is below this. On 13 setups whose
#: features are not shifted it was 0.69 at least; with a feature that means nothing on the server, 0.57 at most.
_LEAST_AGREEMENT, _AGREEMENT_ERRORS = 0.6, 2.0
#: The samples differ if so large a fraction is of no known class, ...
_UNKNOWN_SHARE = 0.05
#: ... or if the total variation distance to the mixture exceeds what chance explains by so much, and by so many
#: standard deviations: of the cells, and of the distances to the mean, which change more with the class frequencies.
_LIMITS = {"kind": (0.03, 2.0), "distance to their mean": (0.1, 3.0)}


@dataclass(frozen=True, eq=False)
class KnownCells:
    """Where the samples of a run were of no client's class, to find such samples among those that are labelled later.

    Attributes:
        cells: the divisions of the input space.
        known: which part of the server's samples in each cell the clients' classes explain, [divisions, K].
    """

    cells: InputCells
    known: Tensor

    def is_unknown(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The probability that each sample [N, ...] is of a client's class, and whether it is too small."""
        probability = mean_over_divisions(self.known, self.cells.assign(inputs)[0])
        return probability, probability < _UNKNOWN

    def to_tensors(self) -> dict[str, Tensor]:
        """For a file."""
        return {**self.cells.to_payload("cells/"), "known": self.known}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor] | None) -> KnownCells | None:
        """The inverse of `to_tensors`; None if there are no tensors, or not these."""
        cells = InputCells.from_payload(tensors or {}, "cells/")
        return None if tensors is None or cells is None or "known" not in tensors else cls(cells, tensors["known"])


def mean_over_divisions(known: Tensor, cells: Tensor) -> Tensor:
    """The mean of the numbers [divisions, K] of the cells [N, divisions] that samples are in, without the last one.

    The last division is by the distance to the mean, which says little about classes.
    """
    return known[:-1].gather(1, cells.T[:-1]).mean(dim=0)


@dataclass(frozen=True, eq=False)
class CellComparison:
    """The server's counts compared with those that a mixture of the clients' classes explains.

    Attributes:
        probability_known: that a sample of the server is of a client's class, [M].
        excess: the total variation distance beyond chance, of the cells and of the distances to the mean.
        deviations: the same in standard deviations.
        most_correct: the largest fraction of right labels that the features allow; None if they do not tell.
        agreement: of the other features with the one that determines the class, with standard errors; None if no
            feature does.
        known_cells: the cells, and which part of the samples in each is of a client's class; None if it is not kept.
    """

    probability_known: Tensor
    excess: tuple[float, float]
    deviations: tuple[float, float]
    most_correct: float | None = None
    agreement: float | None = None
    known_cells: KnownCells | None = None

    @property
    def is_unknown(self) -> Tensor:
        """Which samples look like no class of any client, [M]."""
        return (self.probability_known < _UNKNOWN) & (self.deviations[0] > _LEAST_DEVIATIONS)

    def to_tensors(self) -> dict[str, Tensor]:
        """For `CELLS_FILE`: the cells, if samples of no client's class were found; else nothing."""
        has_unknown = self.known_cells is not None and bool(self.is_unknown.any())
        return self.known_cells.to_tensors() if has_unknown and self.known_cells is not None else {}

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
        if self.agreement is not None and self.agreement < _LEAST_AGREEMENT:
            return "a feature determines the class at the clients, but does not fit the other features on the server"
        return None


def compare_samples(
    evaluations: Mapping[int, EvaluationCounts], inputs: Tensor, predicted: Tensor
) -> CellComparison | None:
    """Compare the server's samples [M, ...] and their labels [M] with those that clients have counted in cells.

    None where clients have counted none, or fewer than `MIN_SAMPLES`.
    """
    counted = [each for each in evaluations.values() if each.cells.numel()]
    divisions = InputCells.fit(inputs, counted[0].cells.shape[1]) if counted else None
    if divisions is None:
        return None
    cells, bins = divisions.assign(inputs)
    caps = weight_caps([int(each.cells[0].sum()) for each in counted])
    tables = [
        np.asarray(sum(cap * getattr(each, name).double().numpy() for cap, each in zip(caps, counted, strict=True)))
        for name in ("cells", "features")
    ]
    compared = compare_cells(tables[0], cells)
    if compared is None:
        return None
    comparison, known, frequencies = compared
    return replace(
        comparison,
        known_cells=KnownCells(divisions, known),
        most_correct=bound_correct_labels(tables[1], bins.numpy(), predicted.cpu().numpy()),
        agreement=bound_agreement(tables[1], bins.numpy(), frequencies),
    )


def compare_cells(clients: Array, cells: Tensor) -> tuple[CellComparison, Tensor, Array] | None:
    """Compare the cells [M, divisions] of the server's samples with the clients' counts [divisions, C, K].

    The second result is the part of the server's samples in each cell that the clients' classes explain,
    [divisions, K], the third the frequencies of these classes that explain them best, [C].
    """
    has_samples = clients[0].sum(axis=1) > 0
    clients = clients[:, has_samples]
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
    known = torch.from_numpy(np.minimum(1.0, (fit * total + 0.5) / (server + 0.5)))
    deviations = excess / np.maximum(deviation, 1e-12)
    comparison = CellComparison(
        mean_over_divisions(known, cells),
        (float(excess[:-1].mean()), float(excess[-1])),
        (float(deviations[:-1].mean()), float(deviations[-1])),
    )
    of_all_classes = np.zeros(len(has_samples))
    of_all_classes[has_samples] = frequencies
    return comparison, known, of_all_classes


def _class_frequencies(server: Array, conditional: Array) -> Array:
    """The class frequencies [C] with which the classes' distributions [divisions, C, K] explain the counts best."""
    frequencies = np.full(conditional.shape[1], 1 / conditional.shape[1])
    for _ in range(_EM_STEPS):
        expected = np.einsum("c,dcj->dj", frequencies, conditional)
        frequencies = frequencies * np.einsum("dcj,dj->c", conditional, server / np.maximum(expected, 1e-300))
        frequencies = frequencies / frequencies.sum()
    return np.asarray(frequencies)


def bound_correct_labels(clients: Array, bins: npt.NDArray[np.uint8], predicted: npt.NDArray[np.int64]) -> float | None:
    """The largest fraction of right labels that the features allow, with `_BETA_ERRORS`; None if they do not tell.

    Args:
        clients: samples by feature, class and bin, [F, C, B].
        bins: of each feature of the server's samples, [M, F].
        predicted: their labels, [M].
    """
    samples, labels = clients[0].sum(axis=1), np.bincount(predicted, minlength=clients.shape[1])
    classes = np.flatnonzero((samples >= _CLASS_SAMPLES) & (labels >= _CLASS_LABELS))
    if len(classes) < 2:
        return None
    weights = (labels[classes] / labels[classes].sum())[:, None]
    of_clients = clients[:, classes] / samples[classes, None]
    # [F, C, B]
    expected = of_clients - (weights * of_clients).sum(axis=1, keepdims=True)
    errors = weights * (1 - weights) * of_clients * (1 - of_clients) / samples[classes, None]
    noise = errors.sum(axis=(1, 2))
    information = (weights * expected**2).sum(axis=(1, 2)) - noise
    informative = information > _INFORMATIVE * noise
    if not informative.any():
        return None
    agreement, error = _agreement(
        expected[informative], [bins[predicted == label][:, informative] for label in classes]
    )
    bound = agreement + _BETA_ERRORS * error
    chance_correct = float((weights**2).sum())
    return float(bound / information[informative].sum()) * (1 - chance_correct) + chance_correct


def bound_agreement(clients: Array, bins: npt.NDArray[np.uint8], frequencies: Array) -> float | None:
    """How far the feature that determines the class agrees with the others, with `_AGREEMENT_ERRORS`.

    None if no feature determines the class, or the others have nothing to do with it.

    Args:
        clients: samples by feature, class and bin, [F, C, B].
        bins: of each feature of the server's samples, [M, F].
        frequencies: of the classes, of the server's samples, [C].
    """
    has_samples = clients[0].sum(axis=1) > 0
    clients, shares = clients[:, has_samples], frequencies[has_samples]
    samples = clients[0].sum(axis=1)
    # [F, C, B] and [F, 1, B]
    conditional = clients / samples[:, None]
    mean = np.einsum("c,dcb->db", shares, conditional)[:, None]
    chi_square = np.einsum("c,dcb->d", shares, (conditional - mean) ** 2 / np.maximum(mean, 1e-12))
    chosen = int(chi_square.argmax())
    if chi_square[chosen] < _DETERMINES:
        return None
    others = np.delete(np.arange(len(clients)), chosen)
    counts = np.bincount(bins[:, chosen], minlength=clients.shape[2])
    filled = np.flatnonzero((counts > 0) & (mean[chosen, 0] > 0))
    counts, conditional = counts[filled], conditional[others]
    weights = (counts / counts.sum())[:, None]
    # P(c | b), [C, bins of the chosen feature]
    posterior = shares[:, None] * clients[chosen][:, filled] / samples[:, None] / mean[chosen, 0, filled]
    # [F - 1, bins of the chosen feature, B]
    expected = np.einsum("ck,dcb->dkb", posterior, conditional)
    errors = np.einsum("ck,dcb->dkb", posterior**2, conditional * (1 - conditional) / samples[:, None])
    noise = (weights * (1 - weights) * errors).sum(axis=(1, 2))
    expected = expected - (weights * expected).sum(axis=1, keepdims=True)
    information = (weights * expected**2).sum(axis=(1, 2)) - noise
    informative = information > _INFORMATIVE * noise
    if not informative.any():
        return None
    of_others = bins[:, others[informative]]
    agreement, error = _agreement(expected[informative], [of_others[bins[:, chosen] == k] for k in filled])
    return float((agreement + _AGREEMENT_ERRORS * error) / information[informative].sum())


def _agreement(expected: Array, groups: Sequence[npt.NDArray[np.uint8]]) -> tuple[float, float]:
    """The sum of w_g e_fgb o_fgb over features, groups of samples and bins, and its standard error.

    It is the mean of a score of each sample, whose deviation includes that features depend on each other.

    Args:
        expected: e, [F, groups, B], with a mean of 0 over the groups with their frequencies w.
        groups: the bins of the samples of each group, each [samples, F].
    """
    scores = [
        np.take_along_axis(table, bins.T, axis=1).sum(axis=0)
        for table, bins in zip(expected.transpose(1, 0, 2), groups, strict=True)
    ]
    total = sum(map(len, scores))
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in scores)
    # Twice, since the clients' fractions have errors too.
    return float(sum(each.sum() for each in scores)) / total, math.sqrt(2 * squares) / total


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
