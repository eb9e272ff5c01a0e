"""What the clients' own judgement says of a run: how many labels are right, and whether refining was worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..data.neighbours import Nearness
from .nearness_signs import differs, wrong_at_least

#: The clients find fewer labels right, beyond chance.
_POOR = 2 / 3
#: From this difference on a reader must know that samples were weighed by the server's classes.
_WEIGHED = 0.05
#: The refined model is worse by so much, and by so many standard errors: votes of five rounds are not independent.
_WORSE, _ERRORS = 0.01, 2.0
#: Across parties nobody can hold samples of others back, so there is no rehearsal.
_REMEDY = {
    True: "`mrtf compare --rehearse 0.2` tells what suits this scene",
    False: "federated_optimizer FedAvg leaves refining out",
}
OWN_SAMPLES = "samples of their own"
#: Below this loss on the samples that they train on, clients know these by heart (docs/estimates.md).
_BY_HEART = 0.1


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
        unweighed: the accuracy and its error on the clients' own classes, where the first two are of the server's.
        by_heart: whether the clients know the samples that they judge by, and nobody knows how far these flatter.
    """

    accuracy: float
    error: float
    gain: float | None = None
    gain_error: float = 0.0
    refined_answers: bool = True
    rehearsable: bool = True
    unweighed: tuple[float, float] | None = None
    by_heart: bool = False

    @classmethod
    def told_in(cls, line: Mapping[str, Any], rehearsable: bool = True) -> Judgement | None:
        """As a line of metrics.jsonl has it; None where nobody has judged."""
        accuracy, error = line.get("estimated_accuracy"), line.get("estimated_error")
        if accuracy is None or error is None:
            return None
        gain, gain_error = line.get("estimated_gain"), line.get("estimated_gain_error") or 0.0
        plain, plain_error = line.get("estimated_unweighed"), line.get("estimated_unweighed_error")
        unweighed = None if plain is None or plain_error is None else (plain, plain_error)
        loss, refined = line.get("local_loss"), bool(line.get("refined_answers", True))
        by_heart = loss is not None and loss < _BY_HEART and "estimated_flattery" not in line
        return cls(accuracy, error, gain, gain_error, refined, rehearsable, unweighed, by_heart)


def poor(judged: Judgement | None) -> str | None:
    """Few labels are right.

    Which classes the server has is known by the names that models gave: these are believed only as far as names are
    right at the clients.
    """
    if judged is None:
        return None
    plain, error = judged.unweighed or (judged.accuracy, judged.error)
    if plain + plain * (judged.accuracy - plain) + error >= _POOR:
        return None
    return (
        f"the clients find {plain:.0%} of this model's labels of their own samples right, and of these "
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
    plain = judged.accuracy if judged.unweighed is None else judged.unweighed[0]
    weighed = f", weighed by your classes ({plain:.2f} without)" if abs(judged.accuracy - plain) >= _WEIGHED else ""
    samples = OWN_SAMPLES + weighed + (", which they know by heart, so rather too good" if judged.by_heart else "")
    if near is None:
        return f"{samples}, which nobody has compared with yours"
    if differs(near):
        return f"{samples}, which differ from yours"
    room = 1 - wrong_at_least(near)
    too_high = judged.accuracy - judged.error > room
    return f"{samples}; the nearest say {room:.2f} at most" if too_high else samples


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
