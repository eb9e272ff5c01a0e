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
#: The same of the intercept of each predicted class (docs/lab/estimates.md).
_CLASS_DEVIATION = 2.0

#: The file of a run directory with the calibration.
CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """How the model's probabilities become those of being right, prediction sets and decisions.

    Attributes:
        slope: of the logistic regression on the logit of the confidence (Platt 1999).
        intercepts: of it, one per predicted class, [C].
        samples: held-out samples from which they were fitted.
        threshold: the least probability of a class in a prediction set.
        coverage: of the prediction sets, in (0, 1).
        accept: the least probability of an accepted label; None accepts all whose set has one class.
    """

    slope: float
    intercepts: tuple[float, ...]
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
        slope, intercepts = fit_confidence(histogram)
        threshold = conformal_threshold(np.asarray(true_class), coverage)
        return cls(slope, intercepts, float(histogram.sum()), threshold, coverage, accept)

    def assess(self, probabilities: Tensor, accuracy: float | None = None) -> LabelTrust:
        """How far the labels of these probabilities [M, C] can be trusted.

        With an estimated accuracy all intercepts are moved equally so that the mean over the samples is that accuracy,
        after one right and one wrong held-out sample more (Laplace): a model that was refined on these samples is more
        confident of them than of the clients'.
        """
        from scipy.optimize import brentq
        from scipy.special import expit

        probabilities = probabilities.double().cpu()
        confidences, labels = probabilities.max(dim=1)
        scores = self.slope * clipped_logit(confidences).numpy() + np.array(self.intercepts)[labels.numpy()]
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
            numbers = {name: float(content[name]) for name in ("slope", "samples", "threshold", "coverage")}
            intercepts, accept = tuple(float(each) for each in content["intercepts"]), content["accept"]
            return cls(**numbers, intercepts=intercepts, accept=None if accept is None else float(accept))
        except (KeyError, TypeError, ValueError):
            return None


def fit_confidence(histogram: Array) -> tuple[float, tuple[float, ...]]:
    """Slope and intercepts of P(right) = expit(slope * logit(confidence) + intercept of the class), from a histogram.

    The slope has a normal prior around 1, which takes the confidences as they are: a few samples that are all right do
    not make every label equally certain. The intercepts have one around a common value, so that a class that is rarely
    predicted has nearly that.

    Args:
        histogram: held-out samples by predicted class, wrong or right, and bins of the confidence, [C, 2, bins].
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    centres = np.concatenate([LOGIT_EDGES[:1], (LOGIT_EDGES[1:] + LOGIT_EDGES[:-1]) / 2, LOGIT_EDGES[-1:]])
    mean = float((histogram.sum(axis=(0, 1)) * centres).sum() / histogram.sum())
    total, right = histogram.sum(axis=1), histogram[:, 1]

    def loss(parameters: Array) -> tuple[float, Array]:
        """The negative logarithm of likelihood times prior, and its gradient."""
        slope, common, own = parameters[0], parameters[1], parameters[2:]
        scores = slope * centres + common + own[:, None]
        # One sample more of either kind at the mean: a few samples that are all right do not prove certainty.
        extra = slope * mean + common
        value = (total * np.logaddexp(0, scores) - right * scores).sum() + 2 * np.logaddexp(0, extra) - extra
        value += ((slope - 1) / _SLOPE_DEVIATION) ** 2 / 2 + ((own / _CLASS_DEVIATION) ** 2).sum() / 2
        errors, extra_error = total * expit(scores) - right, 2 * expit(extra) - 1
        gradient = [
            (errors * centres).sum() + extra_error * mean + (slope - 1) / _SLOPE_DEVIATION**2,
            errors.sum() + extra_error,
            *(errors.sum(axis=1) + own / _CLASS_DEVIATION**2),
        ]
        return float(value), np.array(gradient)

    fitted = minimize(loss, np.array([1.0, *np.zeros(1 + len(histogram))]), jac=True, method="BFGS").x
    return float(fitted[0]), tuple(float(fitted[1] + own) for own in fitted[2:])


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
