"""The accuracy that the clients estimate on their own samples, and what it says about a run.

Any algorithm may report it. The metrics that are read here, all optional but the first two, are `estimated_accuracy`,
`estimated_accuracy_stderr`, `estimated_accuracy_unweighted` and its `_stderr`, `estimated_optimism`, `estimated_gain`
and its `_stderr`, and `refined_share`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .shift import NeighbourStatistics, is_shifted, min_wrong_fraction

#: An accuracy below this, beyond chance, is a warning.
_LOW_ACCURACY = 2 / 3
#: From this difference on the reader is informed that samples were weighted by the server's classes.
_WEIGHTING_SHOWN = 0.05
#: Refining is worse if it loses at least this much, and this many standard errors: counts of five rounds correlate.
_MIN_LOSS, _LOSS_STDERRS = 0.01, 2.0
#: Below this training loss clients overfit the samples on which they estimate (docs/explanation/estimates.md).
_OVERFITTED_LOSS = 0.1
#: The remedy depends on whether a holdout is possible: across silos no process has the clients' samples.
_REMEDIES = {
    True: "`mrtf compare --holdout 0.2` shows which algorithm suits these data",
    False: "federated_optimizer FedAvg does not refine",
}
OWN_SAMPLES = "the clients' own samples"


@dataclass(frozen=True)
class AccuracyEstimate:
    """What the clients of the last rounds estimate on their own samples.

    Attributes:
        accuracy: of the model that predicts.
        stderr: its standard error.
        gain: the accuracy of the refined model less that of the aggregated one; None if not estimated.
        gain_stderr: its standard error.
        refined_predicts: whether the refined model predicts.
        allows_holdout: whether the run could be repeated with a holdout of the clients' samples.
        unweighted: accuracy and standard error with the clients' class frequencies, where the first two fields are
            weighted by the server's predicted ones.
        is_optimistic: whether the clients overfit the samples on which they estimate, and nothing corrects for it.
    """

    accuracy: float
    stderr: float
    gain: float | None = None
    gain_stderr: float = 0.0
    refined_predicts: bool = True
    allows_holdout: bool = True
    unweighted: tuple[float, float] | None = None
    is_optimistic: bool = False

    @classmethod
    def from_metrics(cls, line: Mapping[str, Any], allows_holdout: bool = True) -> AccuracyEstimate | None:
        """Read from a round's metrics; None if the algorithm estimates nothing."""
        accuracy, stderr = line.get("estimated_accuracy"), line.get("estimated_accuracy_stderr")
        if accuracy is None or stderr is None:
            return None
        plain = line.get("estimated_accuracy_unweighted")
        plain_stderr = line.get("estimated_accuracy_unweighted_stderr")
        loss = line.get("train_loss")
        return cls(
            accuracy=accuracy,
            stderr=stderr,
            gain=line.get("estimated_gain"),
            gain_stderr=line.get("estimated_gain_stderr") or 0.0,
            refined_predicts=line.get("refined_share", 1) > 0,
            allows_holdout=allows_holdout,
            unweighted=None if plain is None or plain_stderr is None else (plain, plain_stderr),
            is_optimistic=loss is not None and loss < _OVERFITTED_LOSS and "estimated_optimism" not in line,
        )


def warn_low_accuracy(estimate: AccuracyEstimate | None) -> str | None:
    """A warning if few predictions are right.

    The weighted estimate depends on the server's predicted classes, so it is trusted only as far as predictions are
    right on the clients' samples.
    """
    if estimate is None:
        return None
    plain, stderr = estimate.unweighted or (estimate.accuracy, estimate.stderr)
    if plain + plain * (estimate.accuracy - plain) + stderr >= _LOW_ACCURACY:
        return None
    return (
        f"the model predicts {plain:.0%} of the clients' own samples correctly, and probably no more of the server's; "
        "train for more rounds, or try another learning_rate or model"
    )


def warn_refining_hurts(estimate: AccuracyEstimate | None) -> str | None:
    """A warning if the refined model predicts although the aggregated one is more accurate."""
    if estimate is None or estimate.gain is None or not estimate.refined_predicts:
        return None
    if -estimate.gain < max(_MIN_LOSS, _LOSS_STDERRS * estimate.gain_stderr):
        return None
    return (
        f"the refined model, which predicts, is less accurate than the aggregated one ({_format_loss(estimate)}); "
        f"{_REMEDIES[estimate.allows_holdout]}, `predict_with: client_validated` selects the better model"
    )


def note_aggregated_predicts(estimate: AccuracyEstimate | None) -> str | None:
    """A note if the aggregated model predicts because it is more accurate than the refined one."""
    if estimate is None or estimate.gain is None or estimate.refined_predicts:
        return None
    if -estimate.gain <= estimate.gain_stderr:
        return None
    return (
        "refining may not help on these data: the aggregated model is more accurate than the refined one "
        f"({_format_loss(estimate)}), so it predicts; {_REMEDIES[estimate.allows_holdout]}"
    )


def describe_basis(estimate: AccuracyEstimate | None, neighbours: NeighbourStatistics | None) -> str | None:
    """On which samples the estimate was measured, and what limits its validity for the server's samples."""
    if estimate is None:
        return None
    plain = estimate.accuracy if estimate.unweighted is None else estimate.unweighted[0]
    basis = OWN_SAMPLES
    if abs(estimate.accuracy - plain) >= _WEIGHTING_SHOWN:
        basis += f", weighted by the server's predicted classes ({plain:.2f} unweighted)"
    if estimate.is_optimistic:
        basis += ", optimistic: the clients trained on them"
    if neighbours is None:
        return f"{basis}, not compared with the server's"
    if is_shifted(neighbours):
        return f"{basis}, which differ from the server's"
    upper_bound = 1 - min_wrong_fraction(neighbours)
    is_too_high = estimate.accuracy - estimate.stderr > upper_bound
    return f"{basis}; nearest neighbours suggest at most {upper_bound:.2f}" if is_too_high else basis


def format_estimate(summary: Mapping[str, Any]) -> str | None:
    """The estimate in summary.json with its error and its basis; None if there is none.

    >>> format_estimate({"estimated_accuracy": 0.816, "estimated_accuracy_stderr": 0.028})
    "0.82 ± 0.03 (measured on the clients' own samples)"
    """
    if summary.get("estimated_accuracy") is None:
        return None
    number = f"{summary['estimated_accuracy']:.2f} ± {summary['estimated_accuracy_stderr']:.2f}"
    return f"{number} (measured on {summary.get('estimate_basis') or OWN_SAMPLES})"


def _format_loss(estimate: AccuracyEstimate) -> str:
    return f"by {-(estimate.gain or 0.0):.3f} ± {estimate.gain_stderr:.3f} on {OWN_SAMPLES}"
