"""How far each single label can be trusted: the probability that it is right, a prediction set, and a decision.

All of it comes from histograms of the clients' held-out samples (`algorithms/evaluation.py`), so it holds for samples
like these; where no accuracy is estimated, there is none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..algorithms.evaluation import LOGIT_EDGES, EvaluationCounts, clipped_logit, weight_caps
from ..training.outputs import LabelTrust

Array = npt.NDArray[np.float64]

#: The levels at which summary.json counts the labels that can be accepted.
LEVELS = (0.99, 0.95, 0.9)
#: The standard deviation of the prior of the slope. A quarter, a half and 1 were equally good on eleven setups; without
#: a prior, all labels of a model that made no error on the held-out samples were equally certain.
_SLOPE_DEVIATION = 0.5

#: The file of a run directory with the calibration.
CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """How the model's probabilities become those of being right, prediction sets and decisions.

    Attributes:
        slope: of the logistic regression on the logit of the confidence (Platt 1999).
        intercept: of it.
        samples: held-out samples from which they were fitted.
        threshold: the least probability of a class in a prediction set.
        coverage: of the prediction sets, in (0, 1).
        accept: the least probability of an accepted label; None accepts all whose set has one class.
    """

    slope: float
    intercept: float
    samples: float
    threshold: float
    coverage: float
    accept: float | None

    @classmethod
    def fit(cls, evaluations: Mapping[int, EvaluationCounts], coverage: float, accept: float | None) -> Calibration:
        """From the clients' histograms; at least one client has a sample."""
        counts = [each for each in evaluations.values() if each.samples > 0]
        caps = weight_caps([each.samples for each in counts])
        confidence = sum(cap * each.confidence.double().numpy() for cap, each in zip(caps, counts, strict=True))
        true_class = sum(cap * each.true_class.double().numpy() for cap, each in zip(caps, counts, strict=True))
        histogram = np.asarray(confidence)
        slope, intercept = fit_confidence(histogram)
        threshold = conformal_threshold(np.asarray(true_class), coverage)
        return cls(slope, intercept, float(histogram.sum()), threshold, coverage, accept)

    def assess(self, probabilities: Tensor, accuracy: float | None = None) -> LabelTrust:
        """How far the labels of these probabilities [M, C] can be trusted.

        With an estimated accuracy the intercept is moved so that the mean over the samples is that accuracy, after one
        right and one wrong held-out sample more (Laplace): a model that was refined on these samples is more confident
        of them than of the clients'.
        """
        from scipy.optimize import brentq
        from scipy.special import expit

        probabilities = probabilities.double().cpu()
        scores = self.slope * clipped_logit(probabilities.max(dim=1).values).numpy() + self.intercept
        if accuracy is not None:
            target = (accuracy * self.samples + 1) / (self.samples + 2)
            scores = scores + brentq(lambda move: float(expit(scores + move).mean()) - target, -60.0, 60.0)
        correct = torch.from_numpy(np.asarray(expit(scores)))
        sets = probabilities >= self.threshold
        sets[torch.arange(len(sets)), probabilities.argmax(dim=1)] = True
        is_accepted = sets.sum(dim=1) == 1 if self.accept is None else correct >= self.accept
        return LabelTrust(correct, sets, is_accepted, torch.zeros(len(sets), dtype=torch.bool))

    def to_json(self) -> dict[str, Any]:
        """For `CALIBRATION_FILE`."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Calibration | None:
        """The inverse of `to_json`; None for another content."""
        try:
            numbers = {
                name: float(content[name]) for name in ("slope", "intercept", "samples", "threshold", "coverage")
            }
            accept = content["accept"]
            return cls(**numbers, accept=None if accept is None else float(accept))
        except (KeyError, TypeError, ValueError):
            return None


def fit_confidence(histogram: Array) -> tuple[float, float]:
    """Slope and intercept of P(right) = expit(slope * logit(confidence) + intercept), fitted to a histogram.

    The slope has a normal prior around 1, which takes the confidences as they are: a few samples that are all right do
    not make every label equally certain.

    Args:
        histogram: held-out samples that are predicted wrong, and right, by bins of the confidence, [2, bins].
    """
    from scipy.optimize import minimize

    centres = np.concatenate([LOGIT_EDGES[:1], (LOGIT_EDGES[1:] + LOGIT_EDGES[:-1]) / 2, LOGIT_EDGES[-1:]])
    # One sample more of either kind at the mean: a few samples that are all right do not prove certainty.
    mean = float((histogram.sum(axis=0) * centres).sum() / histogram.sum())
    points = np.append(centres, mean)
    wrong, right = np.hstack([histogram, [[1.0], [1.0]]])

    def loss(parameters: Array) -> float:
        """The negative logarithm of likelihood times prior."""
        scores = parameters[0] * points + parameters[1]
        penalty = ((parameters[0] - 1) / _SLOPE_DEVIATION) ** 2 / 2
        return float(wrong @ np.logaddexp(0, scores) + right @ np.logaddexp(0, -scores) + penalty)

    slope, intercept = minimize(loss, np.array([1.0, 0.0]), method="BFGS").x
    return float(slope), float(intercept)


def conformal_threshold(histogram: Array, coverage: float) -> float:
    """The least probability of a class in a prediction set (split conformal prediction, Sadinle et al. 2019).

    Of n held-out samples, (n + 1) * coverage have at least this probability of their true class; 0 if n is too small.

    >>> histogram = np.zeros(len(LOGIT_EDGES) + 1)
    >>> histogram[[0, -1]] = 10, 90
    >>> round(conformal_threshold(histogram, 0.85), 4), conformal_threshold(histogram, 0.95)
    (0.9997, 0.0)
    """
    at_least = np.cumsum(histogram[::-1])[::-1]
    enough = np.flatnonzero(at_least >= (histogram.sum() + 1) * coverage)
    if not len(enough) or enough[-1] == 0:
        return 0.0
    return float(1 / (1 + np.exp(-LOGIT_EDGES[enough[-1] - 1])))


def summarize_trust(trust: LabelTrust, coverage: float) -> dict[str, Any]:
    """The entries of summary.json: how many labels are given, and at which estimated accuracy."""
    accepted = trust.probability_correct[trust.is_accepted]
    # Without calibrated probabilities those of known labels are still 1.
    is_known = not bool(trust.probability_correct.isnan().any())
    return {
        "samples_accepted": len(accepted),
        "samples_unknown": int(trust.is_unknown.sum()),
        "accepted_accuracy": float(accepted.mean()) if len(accepted) and is_known else None,
        "prediction_set_coverage": coverage if is_known else None,
        "acceptable": {str(level): int((trust.probability_correct >= level).sum()) for level in LEVELS}
        if is_known
        else None,
    }
