"""What the clients' own judgement says of a run: how many labels are right, and whether refining was worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..data.neighbours import Nearness
from .nearness_signs import differs, wrong_at_least

#: The clients find fewer labels right, beyond chance.
_POOR = 2 / 3
#: The refined model is worse by so much, and by so many standard errors: votes of five rounds are not independent.
_WORSE, _ERRORS = 0.01, 2.0
#: Across parties nobody can hold samples of others back, so there is no rehearsal.
_REMEDY = {
    True: "`mrtf compare --rehearse 0.2` tells what suits this scene",
    False: "federated_optimizer FedAvg leaves refining out",
}
OWN_SAMPLES = "samples of their own"


@dataclass(frozen=True)
class Judgement:
    """What the clients of the last rounds say, on samples of their own.

    Attributes:
        accuracy: of the model that answers.
        error: the standard error of that.
        gain: how much more often the refined model is right than the base's; None where that is not known.
        gain_error: the standard error of that.
        refined_answers: whether it is the refined model that answers.
        rehearsable: whether the scene can be rehearsed.
    """

    accuracy: float
    error: float
    gain: float | None = None
    gain_error: float = 0.0
    refined_answers: bool = True
    rehearsable: bool = True

    @classmethod
    def told_in(cls, line: Mapping[str, Any], rehearsable: bool = True) -> Judgement | None:
        """As a line of metrics.jsonl has it; None where nobody has judged."""
        accuracy, error = line.get("estimated_accuracy"), line.get("estimated_error")
        if accuracy is None or error is None:
            return None
        gain, gain_error = line.get("estimated_gain"), line.get("estimated_gain_error") or 0.0
        return cls(accuracy, error, gain, gain_error, bool(line.get("refined_answers", True)), rehearsable)


def poor(judged: Judgement | None) -> str | None:
    """Few labels are right."""
    if judged is None or judged.accuracy + judged.error >= _POOR:
        return None
    return (
        f"the clients find {judged.accuracy:.0%} of this model's labels of their own samples right, and of these "
        "it may be no more; train for more rounds, or try another learning_rate or model"
    )


def worse_for_refining(judged: Judgement | None) -> str | None:
    """The refined model answers, though the clients find the plain average better."""
    if judged is None or judged.gain is None or not judged.refined_answers:
        return None
    if -judged.gain < max(_WORSE, _ERRORS * judged.gain_error):
        return None
    return (
        f"the clients find the refined model, which gives these labels, worse than the plain average of theirs "
        f"({_by_how_much(judged)}); {_REMEDY[judged.rehearsable]}, `answer: judged` takes the better one"
    )


def average_answers(judged: Judgement | None) -> str | None:
    """The plain average answers, since the clients find it better: to be known, and nothing wrong."""
    if judged is None or judged.gain is None or judged.refined_answers or -judged.gain <= judged.gain_error:
        return None
    return (
        "refining may not help here: the clients find the plain average of their models better than the refined one "
        f"({_by_how_much(judged)}), so it gives these labels; {_REMEDY[judged.rehearsable]}"
    )


def judged_on(judged: Judgement | None, near: Nearness | None) -> str | None:
    """What the estimate is of: it says little where the server's samples are of another kind, or nobody knows."""
    if judged is None:
        return None
    if near is None:
        return f"{OWN_SAMPLES}, which nobody has compared with yours"
    if differs(near):
        return f"{OWN_SAMPLES}, which differ from yours"
    room = 1 - wrong_at_least(near)
    too_high = judged.accuracy - judged.error > room
    return f"{OWN_SAMPLES}; the nearest say {room:.2f} at most" if too_high else OWN_SAMPLES


def estimate_told(summary: Mapping[str, Any]) -> str | None:
    """The accuracy that the clients estimate, as a person is told it: never without what it is of.

    >>> estimate_told({"estimated_accuracy": 0.816, "estimated_error": 0.028})
    '0.82 ± 0.03 (by the clients, on samples of their own)'
    """
    if summary.get("estimated_accuracy") is None:
        return None
    number = f"{summary['estimated_accuracy']:.2f} ± {summary['estimated_error']:.2f}"
    return f"{number} (by the clients, on {summary.get('estimated_on') or OWN_SAMPLES})"


def _by_how_much(judged: Judgement) -> str:
    return f"by {-(judged.gain or 0.0):.3f} ± {judged.gain_error:.3f} on {OWN_SAMPLES}"
