"""Which classes are taken for which: all of it while it can be read, otherwise the worst of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from .classes import shortened
from .document import scrolling

#: A larger matrix is not read by anyone: the most frequent mistakes stand in its place.
MOST_CLASSES = 20
MOST_MISTAKES = 20


def confusion_table(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    """The matrix [C, C] as an HTML table, or the most frequent mistakes where C is large."""
    return _matrix(names, confusion) if len(names) <= MOST_CLASSES else _mistakes(names, confusion)


def _matrix(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    short = [escape(name) for name in shortened(names, 14)]
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    head = "".join(f"<th>{name}</th>" for name in short)
    rows = [
        f"<tr><th>{name}</th>"
        + "".join(
            f"<td{' class=right' if row == column else ''} "
            f'style="background:rgba(var(--shade),{0.75 * share[row, column]:.2f})">'
            f"{confusion[row, column] or ''}</td>"
            for column in range(len(names))
        )
        + "</tr>"
        for row, name in enumerate(short)
    ]
    return (
        "<h3>Confusion</h3><p class='faint'>A row is a true class, a column what its samples were called.</p>"
        + scrolling(
            f'<table class="confusion first"><tr><th></th>{head}</tr>{"".join(rows)}</table>', "Confusion matrix"
        )
    )


def _mistakes(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    worst = [
        np.unravel_index(cell, wrong.shape) for cell in np.argsort(-wrong, axis=None, kind="stable")[:MOST_MISTAKES]
    ]
    true = confusion.sum(axis=1)
    rows = "".join(
        f"<tr><td>{escape(names[row])}</td><td>{escape(names[column])}</td>"
        f'<td class="number">{wrong[row, column]}</td>'
        f'<td class="number">{wrong[row, column] / true[row]:.3f}</td></tr>'
        for row, column in worst
        if wrong[row, column]
    )
    return "<h3>Most frequent mistakes</h3>" + scrolling(
        '<table class="columns prose"><tr><th>true class</th><th>called</th><th class="number">samples</th>'
        f'<th class="number">of the class</th></tr>{rows}</table>',
        "Most frequent mistakes",
    )
