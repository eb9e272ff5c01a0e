"""What the paper claims of its comparisons, asked of the runs that were done here."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

from ..scores import Row
from .comparison import MRTF, Done, best_of
from .panels import stage
from .scene import Verdict

_MEAN: Callable[[Row], float] = lambda row: row.mean.mean  # noqa: E731  two measures, by name
_END: Callable[[Row], float] = lambda row: row.last.mean  # noqa: E731


def mrtf_is_best(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """MrTF above every other algorithm, over all rounds and at the end, in every panel."""
    verdicts = []
    for preset in presets:
        label = f"{MRTF}:{preset}"
        others = [other for other in done[0].rows if not other.startswith(MRTF)]
        faster = sum(best_of(one, label, others, _MEAN) for one in done)
        better = sum(best_of(one, label, others, _END) for one in done)
        told = (
            f"best mean over rounds in {faster} of {len(done)} panels, best in the last ten rounds in {better} of "
            f"{len(done)}"
        )
        held = _known(done, faster == better == len(done))
        verdicts.append(Verdict("MrTF converges faster and ends higher than all others", held, told, preset))
    return verdicts


def mrtf_ends_highest(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """MrTF's final accuracy above the others', in every column of a table."""
    verdicts = []
    for preset in presets:
        label = f"{MRTF}:{preset}"
        others = [other for other in done[0].rows if not other.startswith(MRTF)]
        highest = [one.panel.column for one in done if best_of(one, label, others, lambda row: row.final.mean)]
        told = f"highest in {len(highest)} of {len(done)} columns" + (f" ({'; '.join(highest)})" if highest else "")
        held = _known(done, len(highest) == len(done))
        verdicts.append(Verdict(f"MrTF ends above {' and '.join(others)}", held, told, preset))
    return verdicts


def noise_costs_mrtf_less(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """Beside being above: with the most noise MrTF loses less of its accuracy than FedAvg."""
    verdicts = mrtf_ends_highest(done, presets)
    if len(done) < 2:
        return verdicts
    for preset in presets:
        lost = {
            label: done[0].rows[label].final.mean - done[-1].rows[label].final.mean
            for label in ("FedAvg", f"{MRTF}:{preset}")
        }
        ours, theirs = lost[f"{MRTF}:{preset}"], lost["FedAvg"]
        told = f"FedAvg loses {100 * theirs:.1f} points from the least noise to the most, MrTF {100 * ours:.1f}"
        verdicts.append(Verdict("MrTF loses less by noise than FedAvg", _known(done, ours <= theirs), told, preset))
    return verdicts


def modules_add_up(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """Stabilised teachers above averages of logits and of parameters; all modules together on top."""
    bars = ("PA", "AL", "ST", "ST+RD", "ST+RD+CLR")
    steady = sum(best_of(one, "ST", ("PA", "AL"), lambda row: row.final.mean) for one in done)
    top = sum(best_of(one, "ST+RD+CLR", bars, lambda row: row.final.mean) for one in done)
    number = len(done)
    verdicts = [
        Verdict(
            "ST alone is above PA and AL", _known(done, steady == number), f"in {steady} of {number} panels", "paper"
        ),
        Verdict("ST+RD+CLR is the highest bar", _known(done, top == number), f"in {top} of {number} panels", "paper"),
    ]
    for preset in presets:
        if preset != "paper":
            above = sum(best_of(one, f"{MRTF}:{preset}", bars, lambda row: row.final.mean) for one in done)
            told = f"in {above} of {number} panels"
            verdicts.append(Verdict("MrTF is above all five bars", _known(done, above == number), told, preset))
    return verdicts


def distilling_does_not_help(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """FedDF's distilled model no better than its aggregated model, and unsteady from round to round."""
    worse, swings = 0, []
    for one in done:
        aggregated = [value for _, value in stage(one.metrics["FedDF"], "acc_aggregated")]
        distilled = [value for _, value in stage(one.metrics["FedDF"], "acc_refined")]
        worse += statistics.fmean(distilled) <= statistics.fmean(aggregated)
        drops = [before - after for before, after in itertools.pairwise(distilled)]
        swings.append(100 * max(drops, default=0.0))
    told = (
        f"the distilled model's mean over rounds is not above the aggregated model's in {worse} of {len(done)} panels; "
        f"its largest fall from one round to the next is {max(swings):.1f} points"
    )
    return [Verdict("distilling does not improve the aggregated model", _known(done, worse == len(done)), told)]


def _known(done: Sequence[Done], held: bool) -> bool | None:
    """None where in no panel anything has been learnt: the budget is too small to tell."""
    return held if any(one.has_learnt for one in done) else None
