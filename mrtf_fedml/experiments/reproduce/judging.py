"""What the paper claims of its comparisons, asked of the runs that were done here."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

from ..scores import Row
from .comparison import MRTF, Done, best_of
from .panels import stage
from .scene import Verdict

_MEAN: Callable[[Row], float] = lambda row: row.mean.mean  # noqa: E731  three measures, by name
_END: Callable[[Row], float] = lambda row: row.last.mean  # noqa: E731
_FINAL: Callable[[Row], float] = lambda row: row.final.mean  # noqa: E731


def mrtf_is_best(done: Sequence[Done], presets: Sequence[str], most: bool = False) -> list[Verdict]:
    """MrTF above every other algorithm, over all rounds and at the end: in every panel, or in most at the end."""
    verdicts = []
    learnt = _learnt(done)
    for preset in presets:
        label = f"{MRTF}:{preset}"
        faster = sum(best_of(one, label, _others(one), _MEAN) for one in learnt)
        better = sum(best_of(one, label, _others(one), _END) for one in learnt)
        evidence = (
            f"best mean over rounds in {faster} of {len(learnt)} panels, best in the last ten rounds in {better}"
            f"{_silent(done)}"
        )
        claim = "MrTF converges faster and ends higher than all others"
        held = faster == better == len(learnt)
        if most:
            claim, held = "MrTF ends higher than all others in most panels", 2 * better > len(learnt)
        verdicts.append(Verdict(claim, _known(done, held), evidence, preset))
    return verdicts


def mrtf_is_steadier(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """MrTF reaches Scaffold's best, and falls less from its own best to its end."""
    verdicts = []
    learnt = _learnt(done)
    for preset in presets:
        label = f"{MRTF}:{preset}"
        reached = sum(one.rows[label].best.mean >= one.rows["Scaffold"].best.mean for one in learnt)
        steady = sum(_fall(one.rows[label]) <= _fall(one.rows["Scaffold"]) for one in learnt)
        better = sum(best_of(one, label, _others(one), _END) for one in learnt)
        evidence = (
            f"its best is not below Scaffold's in {reached} of {len(learnt)} panels, its fall from the best round to "
            f"the last ten is not larger in {steady}, it is best in the last ten rounds in {better}{_silent(done)}"
        )
        held = _known(done, reached == steady == len(learnt))
        verdicts.append(Verdict("MrTF achieves Scaffold's best and is more stable", held, evidence, preset))
    return verdicts


def mrtf_ends_highest(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """MrTF's final accuracy above the others', in every column of a table."""
    verdicts = []
    learnt = _learnt(done)
    for preset in presets:
        label, others = f"{MRTF}:{preset}", _others(done[0])
        highest = [one.panel.column for one in learnt if best_of(one, label, others, _FINAL)]
        evidence = f"highest in {len(highest)} of {len(learnt)} columns" + (
            f" ({'; '.join(highest)})" if highest else ""
        )
        held = _known(done, len(highest) == len(learnt))
        verdicts.append(Verdict(f"MrTF ends above {' and '.join(others)}", held, evidence + _silent(done), preset))
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
        evidence = f"FedAvg loses {100 * theirs:.1f} points from the least noise to the most, MrTF {100 * ours:.1f}"
        verdicts.append(Verdict("MrTF loses less by noise than FedAvg", _known(done, ours <= theirs), evidence, preset))
    return verdicts


def modules_add_up(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """Stabilised teachers above averages of logits and of parameters; all modules together on top."""
    bars = ("PA", "AL", "ST", "ST+RD", "ST+RD+CLR")
    asked: list[tuple[str, Sequence[str], str, str]] = [
        ("ST", ("PA", "AL"), "ST alone is above PA and AL", "paper"),
        ("ST+RD+CLR", bars, "ST+RD+CLR is the highest bar", "paper"),
    ]
    asked += [
        (f"{MRTF}:{preset}", bars, "MrTF is above all five bars", preset) for preset in presets if preset != "paper"
    ]
    verdicts = []
    learnt = _learnt(done)
    for label, rivals, claim, preset in asked:
        above = sum(best_of(one, label, rivals, _FINAL) for one in learnt)
        evidence = f"in {above} of {len(learnt)} panels{_silent(done)}"
        verdicts.append(Verdict(claim, _known(done, above == len(learnt)), evidence, preset))
    return verdicts


def distilling_does_not_help(done: Sequence[Done], presets: Sequence[str]) -> list[Verdict]:
    """FedDF's distilled model no better than its aggregated model, and unsteady from round to round."""
    worse, swings = 0, []
    learnt = _learnt(done)
    # Where nothing was learnt the numbers are told all the same, and the verdict is that there is none.
    for one in learnt or done:
        aggregated = [value for _, value in stage(one.metrics["FedDF"], "acc_aggregated")]
        distilled = [value for _, value in stage(one.metrics["FedDF"], "acc_refined")]
        worse += statistics.fmean(distilled) <= statistics.fmean(aggregated)
        drops = [before - after for before, after in itertools.pairwise(distilled)]
        swings.append(100 * max(drops, default=0.0))
    evidence = (
        f"the distilled model's mean over rounds is not above the aggregated model's in {worse} of {len(swings)} "
        f"panels; its largest fall from one round to the next is {max(swings):.1f} points{_silent(done)}"
    )
    return [Verdict("distilling does not improve the aggregated model", _known(done, worse == len(learnt)), evidence)]


def _others(one: Done) -> list[str]:
    return [label for label in one.rows if not label.startswith(MRTF)]


def _fall(row: Row) -> float:
    return row.best.mean - row.last.mean


def _learnt(done: Sequence[Done]) -> list[Done]:
    """The panels that can tell anything: among models that know nothing none is best."""
    return [one for one in done if one.has_learnt]


def _silent(done: Sequence[Done]) -> str:
    silent = len(done) - len(_learnt(done))
    return f"; {silent} more {'has' if silent == 1 else 'have'} learnt nothing and cannot tell" if silent else ""


def _known(done: Sequence[Done], held: bool) -> bool | None:
    """None where in no panel anything has been learnt: the budget is too small to tell."""
    return held if any(one.has_learnt for one in done) else None
