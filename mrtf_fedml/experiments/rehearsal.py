"""What a rehearsed comparison must say of itself: what stood in for the server's set, and how far it is from it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

#: The area under the curve of a classifier that tells the two sets apart: above these it is another kind of data.
_NEAR, _FAR = 0.65, 0.85
#: A class whose share differs by so much is worth its name.
_SHARE = 0.1


def rehearsal_notes(runs: Sequence[Mapping[str, Any]], share: float) -> list[str]:
    """Sentences for the page, from the rehearsal.json of the best algorithm's runs, one per seed."""
    first = runs[0]
    notes = [
        f"Rehearsed: {share:.0%} of each client's labelled samples ({first['held_out']} of "
        f"{first['held_out'] + first['kept']}, of {first['clients']} clients) stood in for the server's "
        f"{first['real']} samples, which have no labels here; the clients trained on the rest. The accuracies are of "
        "the stand-in."
    ]
    apart = [run["told_apart"] for run in runs if run["told_apart"] is not None]
    if apart:
        notes.append(_likeness(statistics.fmean(apart), first["far_features"]))
    shifted = [line for line in shares_table(runs)[1:] if abs(_number(line[1]) - _number(line[2])) >= 100 * _SHARE]
    if shifted:
        named = "; ".join(f"{name!r} {mock} against {real}" for name, mock, real in shifted[:3])
        notes.append(
            f"The best algorithm's model gives other shares of classes in the two sets ({named}): its accuracy on the "
            "real one may differ as the classes' do."
        )
    return notes


def shares_table(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Head and rows: the share of each class that the model gives in the stand-in and in the real set."""
    rows = [["class", "in the rehearsed set", "in the server's own set"]]
    for place, name in enumerate(runs[0]["class_names"]):
        means = [statistics.fmean(run[key][place] for run in runs) for key in ("shares_rehearsed", "shares_real")]
        rows.append([name, *(f"{100 * mean:.1f} %" for mean in means)])
    return rows


def _likeness(area: float, features: Sequence[Sequence[Any]]) -> str:
    verdict = (
        "they are of a kind, and the rehearsal speaks for the server's set"
        if area < _NEAR
        else "they differ, and the accuracy on the server's set may be lower than rehearsed"
        if area < _FAR
        else "they are another kind of data, and the rehearsal says little about the server's set"
    )
    named = ", ".join(f"{name} by {distance:.1f} deviations" for name, distance in features)
    farthest = f"; farthest apart: {named}" if named else ""
    return (
        f"A classifier tells the rehearsed samples from the server's own with an area under the curve of {area:.2f} "
        f"(0.5 is guessing, 1 is always right): {verdict}{farthest}."
    )


def _number(percent: str) -> float:
    return float(percent.removesuffix(" %"))
