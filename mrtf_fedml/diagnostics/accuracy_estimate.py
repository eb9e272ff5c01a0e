"""The accuracy of a run's labels, estimated from the clients' held-out samples, and what it says about the run.

After the last round the clients evaluate the model that predicts (`algorithms/evaluation.py`). The server's classes may
be more or less frequent than the clients', so the accuracy is the post-stratified one: the recall of each class,
weighted by the class frequencies of the server's samples, which are estimated from the predicted classes and
the clients' confusion table (Saerens et al. 2002; Lipton et al. 2018). The interval is that of Korn and
Graubard (1998) for proportions from clustered samples: the clients are the clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..algorithms.evaluation import EvaluationCounts, weight_caps
from ..data.formatting import format_list
from ..training.evaluation import CONFIDENCE

Array = npt.NDArray[np.float64]

#: Each class gets so many samples with the accuracy of all classes together: a class with few samples of its own, or
#: none, is not taken as always right or always wrong.
_PRIOR_SAMPLES = 2.0
#: Steps of the estimate of the class frequencies; each step increases the likelihood.
_EM_STEPS = 200
#: A client contradicts the others if its accuracy differs from what theirs predict by so much, by so many times the
#: spread over clients, and if so few or so many correct samples have less than this probability
#: in a run.
_CONTRADICTION, _CONTRADICTION_SPREADS, _CONTRADICTION_PROBABILITY = 0.25, 4.0, 1e-3
#: With fewer clients it is not clear which client is wrong.
_MIN_CLIENTS_FOR_CONTRADICTION = 4
#: From fewer labels that the server has drawn at random no accuracy is estimated, unless clients have estimated one:
#: its standard error could exceed 0.11.
_MIN_RANDOM_LABELS = 20
#: An accuracy below this, beyond chance, is a warning.
LOW_ACCURACY = 2 / 3
#: Refining is worse if it loses at least this much, and this many standard errors: counts of five rounds correlate.
_MIN_LOSS, _LOSS_STDERRS = 0.01, 2.0
#: The remedy depends on whether a holdout is possible: across silos no process has the clients' samples.
_REMEDIES = {
    True: "`mrtf compare --holdout 0.2` shows which algorithm suits these data",
    False: "federated_optimizer FedAvg does not refine",
}


@dataclass(frozen=True)
class AccuracyEstimate:
    """The estimated accuracy on samples like the clients', with the server's class frequencies.

    Attributes:
        accuracy: of the model that predicts.
        low: the lower end of the 95 % interval of the accuracy on the server's samples.
        high: its upper end.
        clients: how many clients evaluated.
        samples: how many held-out samples they evaluated.
        recall: of each class: the estimate and the ends of its interval; None where no client held out a sample.
        classes_differ: whether the server's class frequencies differ from the clients' beyond chance.
        effective_samples: how many independent samples would give the same precision.
        contradicting: clients whose counts contradict the others': their accuracy, and the one that the others predict.
    """

    accuracy: float
    low: float
    high: float
    clients: int
    samples: int
    recall: tuple[tuple[float, float, float] | None, ...]
    contradicting: Mapping[int, tuple[float, float]]
    classes_differ: bool = False
    effective_samples: float = 0.0


@dataclass(frozen=True)
class LabelCounts:
    """The server's own labels of some of its samples, and how many of them were predicted before they were learnt.

    Attributes:
        samples: M, all samples.
        given: those that have a label.
        random: of these, those that were drawn at random; an accuracy is estimated from them alone.
        correct: of these, those that the model predicts right.
    """

    samples: int
    given: int
    random: int
    correct: int

    @property
    def is_enough(self) -> bool:
        """Whether an accuracy can be estimated from these labels alone."""
        return self.random >= _MIN_RANDOM_LABELS

    def contradicts(self, estimate: AccuracyEstimate) -> bool:
        """Whether an accuracy that clients have estimated is outside of the 95 % interval of these labels."""
        if self.random == 0:
            return False
        low, high = clopper_pearson(self.correct / self.random, self.random)
        return not low <= estimate.accuracy <= high

    def of_all(self, accuracy: float) -> float:
        """The accuracy of all samples, where it is `accuracy` of those without a label, and 1 of the others."""
        return (self.given + (self.samples - self.given) * accuracy) / self.samples


def correct_estimate(estimate: AccuracyEstimate | None, labels: LabelCounts) -> AccuracyEstimate | None:
    """The estimate after the server's own labels are counted; None if there is none, and too few labels.

    Labels drawn at random are added to the clients' effective number of samples; where they contradict the clients'
    estimate, or there is none, they count alone. Samples with a label are right.

    >>> alone = correct_estimate(None, LabelCounts(samples=100, given=20, random=20, correct=10))
    >>> round(alone.accuracy, 2), round(alone.low, 2), round(alone.high, 2)
    (0.6, 0.4, 0.8)
    >>> correct_estimate(None, LabelCounts(samples=100, given=20, random=4, correct=4))
    """
    if estimate is None or labels.contradicts(estimate):
        if not labels.is_enough:
            return None
        estimate = AccuracyEstimate(0.0, 0.0, 1.0, 0, 0, (), {})
    size = estimate.effective_samples + labels.random
    accuracy = (estimate.effective_samples * estimate.accuracy + labels.correct) / size
    others = max(labels.samples - labels.given, 1)
    low, high = clopper_pearson(accuracy, 1.0 / (1.0 / size + 1.0 / others))
    accuracy, low, high = (labels.of_all(number) for number in (accuracy, low, high))
    return replace(estimate, accuracy=accuracy, low=low, high=high, effective_samples=size)


def estimate_accuracy(evaluations: Mapping[int, EvaluationCounts], predicted: Tensor) -> AccuracyEstimate | None:
    """The accuracy of the predicted labels; None if no client held out a sample.

    Args:
        evaluations: by client.
        predicted: the labels of the server's samples, [M].
    """
    counts = {client: each for client, each in evaluations.items() if each.samples > 0}
    if not counts:
        return None
    tables = np.stack([each.confusion.double().numpy() for each in counts.values()])
    caps = np.array(weight_caps([each.samples for each in counts.values()]))
    weighted = tables * caps[:, None, None]
    classes = tables.shape[1]
    confusion = smooth_confusion(weighted.sum(axis=0))
    predicted_counts = torch.bincount(predicted.flatten().cpu(), minlength=classes).double().numpy()
    held = weighted.sum(axis=(0, 2))
    frequencies = estimate_class_frequencies(confusion, predicted_counts, held)
    accuracy = float(frequencies @ confusion.diagonal())
    size = _effective_samples(weighted, confusion.diagonal(), frequencies, accuracy, int(tables.sum()))
    # The accuracy on these M samples differs by chance from that on all samples like them.
    low, high = clopper_pearson(accuracy, 1.0 / (1.0 / size + 1.0 / len(predicted)))
    recall = [
        (float(confusion[label, label]), *clopper_pearson(float(confusion[label, label]), held[label] + _PRIOR_SAMPLES))
        if held[label] > 0
        else None
        for label in range(classes)
    ]
    contradicting = find_contradictions(dict(zip(counts, tables, strict=True)))
    differ = not np.allclose(frequencies, initial_frequencies(held))
    return AccuracyEstimate(
        accuracy, low, high, len(counts), int(tables.sum()), tuple(recall), contradicting, differ, size
    )


def smooth_confusion(table: Array) -> Array:
    """P(predicted class | class), [C, C], with `_PRIOR_SAMPLES` per class of the accuracy of all classes together.

    >>> smooth_confusion(np.array([[8.0, 0.0], [0.0, 0.0]])).round(2).tolist()
    [[0.98, 0.02], [0.1, 0.9]]
    """
    classes = len(table)
    # One error and one correct sample more: a perfect score of a few samples is no proof (Laplace).
    accuracy = (np.trace(table) + 1.0) / (table.sum() + 2.0)
    prior = np.full((classes, classes), (1 - accuracy) / max(classes - 1, 1))
    np.fill_diagonal(prior, accuracy)
    smoothed = table + _PRIOR_SAMPLES * prior
    return np.asarray(smoothed / smoothed.sum(axis=1, keepdims=True))


def estimate_class_frequencies(confusion: Array, predicted: Array, held: Array) -> Array:
    """The class frequencies q of the server's samples, [C], from how often each class is predicted.

    Expectation maximisation of the mixture P(predicted = j) = sum_c q_c confusion[c, j], from the clients' frequencies,
    until the predicted classes are as expected within chance (discrepancy principle). A class that the model rarely
    predicts on either side is then not taken for one that the server does not have.

    Args:
        confusion: P(predicted class | class), [C, C].
        predicted: the server's samples of each predicted class, [C].
        held: the clients' samples of each class, [C].

    >>> tables, few = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([1000.0, 0.0])
    >>> estimate_class_frequencies(tables, few, np.array([50.0, 50.0])).round(1).tolist()
    [1.0, 0.0]
    >>> estimate_class_frequencies(tables, np.array([54.0, 46.0]), np.array([50.0, 50.0])).tolist()
    [0.5, 0.5]
    """
    from scipy.stats import chi2

    frequencies = initial_frequencies(held)
    shares, samples = predicted / predicted.sum(), predicted.sum()
    most = chi2.ppf(CONFIDENCE, len(held) - 1)
    for _ in range(_EM_STEPS):
        expected = frequencies @ confusion
        variance = expected * (1 - expected) / samples
        variance += frequencies**2 @ (confusion * (1 - confusion) / (held + _PRIOR_SAMPLES)[:, None])
        if float(((shares - expected) ** 2 / variance).sum()) <= most:
            break
        frequencies = frequencies * (confusion @ (shares / expected))
    return np.asarray(frequencies)


def initial_frequencies(held: Array) -> Array:
    """The clients' class frequencies, [C]; a class of which no sample is held out has a small one."""
    return np.asarray((held + _PRIOR_SAMPLES / len(held)) / (held.sum() + _PRIOR_SAMPLES))


def clopper_pearson(accuracy: float, samples: float) -> tuple[float, float]:
    """The exact 95 % interval of a proportion of so many samples; the number need not be an integer.

    >>> [round(end, 3) for end in clopper_pearson(0.9, 100)]
    [0.824, 0.951]
    """
    from scipy.stats import beta

    tail, correct = (1 - CONFIDENCE) / 2, accuracy * samples
    low = float(beta.ppf(tail, correct, samples - correct + 1)) if correct > 0 else 0.0
    high = float(beta.ppf(1 - tail, correct + 1, samples - correct)) if correct < samples else 1.0
    return low, high


def _effective_samples(weighted: Array, recall: Array, frequencies: Array, accuracy: float, samples: int) -> float:
    """How many independent samples would give the same precision (Korn and Graubard).

    The variance over clients is that of the linearised estimate (Cochran 1977); the quantile of t replaces the normal
    one for few clients. Never more than the samples that the class weights leave (Kish).
    """
    from scipy.stats import t as student

    held = weighted.sum(axis=(0, 2)) + _PRIOR_SAMPLES
    most = 1.0 / float((frequencies**2 / held).sum())
    clients = len(weighted)
    if clients < 2:
        return most
    correct = weighted.diagonal(axis1=1, axis2=2)
    influence = ((correct - recall * weighted.sum(axis=2)) * (frequencies / held)).sum(axis=1)
    variance = float((influence**2).sum()) * clients / (clients - 1)
    if variance <= 0:
        return most
    tail = (1 + CONFIDENCE) / 2
    quantiles = student.ppf(tail, max(samples - 1, 1)) / student.ppf(tail, clients - 1)
    return float(min(most, max(1.0, accuracy * (1 - accuracy) / variance * quantiles**2)))


def find_contradictions(tables: Mapping[int, Array]) -> dict[int, tuple[float, float]]:
    """Clients whose counts contradict the others', with their accuracy and the one that the others' recalls predict.

    The spread of all clients' differences is the error: where clients truly differ, none is named.

    >>> honest, wrong = np.array([[20.0, 0.0], [1.0, 19.0]]), np.array([[0.0, 20.0], [20.0, 0.0]])
    >>> list(find_contradictions({0: honest, 1: honest, 2: honest, 3: honest, 4: wrong}))
    [4]
    """
    if len(tables) < _MIN_CLIENTS_FOR_CONTRADICTION:
        return {}
    from scipy.stats import binom

    found, differences, chances = {}, {}, {}
    caps = dict(zip(tables, weight_caps([int(table.sum()) for table in tables.values()]), strict=True))
    total = sum(caps[client] * table for client, table in tables.items())
    for client, table in tables.items():
        recall = smooth_confusion(total - caps[client] * table).diagonal()
        held = table.sum(axis=1)
        expected, own = float(held @ recall / held.sum()), float(np.trace(table) / held.sum())
        found[client], differences[client] = (own, expected), own - expected
        correct, samples = round(float(np.trace(table))), round(float(held.sum()))
        # One correct sample and one error more of the others: that all of them are right does not prove certainty.
        others = float((total - caps[client] * table).sum())
        rate = (expected * others + 1) / (others + 2)
        chances[client] = min(binom.cdf(correct, samples, rate), binom.sf(correct - 1, samples, rate))
    median = float(np.median(list(differences.values())))
    # The median absolute deviation, scaled to the standard deviation of a normal distribution.
    spread = 1.4826 * float(np.median([abs(each - median) for each in differences.values()]))
    return {
        client: found[client]
        for client, each in differences.items()
        if abs(each - median) >= max(_CONTRADICTION, _CONTRADICTION_SPREADS * spread)
        and chances[client] * len(tables) < _CONTRADICTION_PROBABILITY
    }


def warn_contradicting_clients(estimate: AccuracyEstimate | None) -> str | None:
    """A warning that names clients whose counts contradict the others'."""
    if estimate is None or not estimate.contradicting:
        return None
    findings = format_list(
        f"client {client} reports {own:.2f} where the others' samples predict {expected:.2f}"
        for client, (own, expected) in estimate.contradicting.items()
    )
    return (
        f"the accuracies that clients report contradict each other ({findings}): such a client has other data or wrong "
        "counts, and the estimate is uncertain; check that client"
    )


def warn_low_accuracy(estimate: AccuracyEstimate | None) -> str | None:
    """A warning if few predictions are right."""
    if estimate is None or estimate.high >= LOW_ACCURACY:
        return None
    return (
        f"the model predicts {estimate.accuracy:.0%} of the clients' held-out samples correctly, and probably no more "
        "of the server's; train for more rounds, or try another learning_rate or model"
    )


@dataclass(frozen=True)
class RefiningGain:
    """What the clients of the last rounds found of the two candidates.

    Attributes:
        gain: the accuracy of the refined model less that of the aggregated one.
        stderr: its standard error.
        refined_predicts: whether the refined model predicts.
        allows_holdout: whether the run could be repeated with a holdout of the clients' samples.
    """

    gain: float
    stderr: float
    refined_predicts: bool = True
    allows_holdout: bool = True

    @classmethod
    def from_metrics(cls, line: Mapping[str, Any], allows_holdout: bool = True) -> RefiningGain | None:
        """Read from a round's metrics (`estimated_gain` and its `_stderr`, `refined_share`); None without them."""
        if line.get("estimated_gain") is None:
            return None
        stderr = line.get("estimated_gain_stderr") or 0.0
        return cls(line["estimated_gain"], stderr, line.get("refined_share", 1) > 0, allows_holdout)

    def describe_loss(self) -> str:
        """The loss by refining and its error."""
        return f"by {-self.gain:.3f} ± {self.stderr:.3f} on the clients' held-out samples"


def warn_refining_hurts(found: RefiningGain | None) -> str | None:
    """A warning if the refined model predicts although the aggregated one is more accurate."""
    if found is None or not found.refined_predicts or -found.gain < max(_MIN_LOSS, _LOSS_STDERRS * found.stderr):
        return None
    return (
        f"the refined model, which predicts, is less accurate than the aggregated one ({found.describe_loss()}); "
        f"{_REMEDIES[found.allows_holdout]}, `predict_with: client_validated` selects the better model"
    )


def note_aggregated_predicts(found: RefiningGain | None) -> str | None:
    """A note if the aggregated model predicts because it is more accurate than the refined one."""
    if found is None or found.refined_predicts or -found.gain <= found.stderr:
        return None
    return (
        "refining may not help on these data: the aggregated model is more accurate than the refined one "
        f"({found.describe_loss()}), so it predicts; {_REMEDIES[found.allows_holdout]}"
    )


def summarize_estimate(
    estimate: AccuracyEstimate | None, reason: str | None, condition: str | None, class_names: Sequence[str]
) -> dict[str, Any]:
    """The entries of summary.json.

    Args:
        estimate: of the run; None if there is none.
        reason: why there is none, or why it must not be stated; None where it may.
        condition: under which it holds; None without one.
        class_names: C of them.
    """
    if estimate is None or reason is not None:
        return {"estimated_accuracy": None, "estimated_accuracy_interval": None, "no_estimate_because": reason}
    return {
        "estimated_accuracy": estimate.accuracy,
        "estimated_accuracy_interval": [estimate.low, estimate.high],
        "no_estimate_because": None,
        "estimate_condition": condition,
        "validation_clients": estimate.clients,
        "validation_samples": estimate.samples,
        "estimated_recall": {
            name: None if recall is None else list(recall)
            for name, recall in zip(class_names, estimate.recall or [None] * len(class_names), strict=True)
        },
    }
