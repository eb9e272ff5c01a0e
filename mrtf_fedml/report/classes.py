"""A number for each class, as bars beside their names, which can be read on a telephone too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

import numpy as np

from .axes import Axis, around
from .plot import Layer, column_chart

#: More bars than these are a skyline without names; the bars with names are folded away below it.
MOST_BARS = 30


def class_bars(title: str, names: Sequence[str], values: Sequence[float], texts: Sequence[str], top: float) -> str:
    """Bars from 0 to `top`, each with its text; a value that is NaN has no bar."""
    heights = np.nan_to_num(np.asarray(values, dtype=float))
    rows = [
        f'<span title="{escape(name)}">{escape(" ".join(name.split()))}</span>'
        f'<div><i style="width:{100 * height / top:.1f}%"></i></div><b>{escape(text)}</b>'
        for name, height, text in zip(names, heights.tolist(), texts, strict=True)
    ]
    if len(rows) <= MOST_BARS:
        return f'<div class="rows">{"".join(rows)}</div>'
    edges = [number - 0.5 for number in range(len(rows) + 1)]
    y = Axis(0, 1) if top == 1 else around([0, top])
    skyline = column_chart(
        title, edges, [Layer(title, heights.tolist())], Axis(-0.5, len(rows) - 0.5, "class", integer=True), y
    )
    folded = "".join(f"<p>{row}</p>" for row in rows)
    return f'{skyline}<details><summary>By name</summary><div class="rows many">{folded}</div></details>'


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Each name on one line of at most `most` characters; names that begin alike keep their ends too.

    >>> shortened(["aquarium fish and others", "bear"], 12)
    ['aquarium fi…', 'bear']
    >>> shortened(["letter of class 10", "letter of class 11"], 12)
    ['letter…ss 10', 'letter…ss 11']
    """
    lines = [" ".join(name.split()) for name in names]
    starts = Counter(line[: most - 1] for line in lines)
    end = (most - 1) // 2
    return [
        line
        if len(line) <= most
        else f"{line[: most - 1]}…"
        if starts[line[: most - 1]] == 1
        else f"{line[: most - 1 - end]}…{line[-end:]}"
        for line in lines
    ]
