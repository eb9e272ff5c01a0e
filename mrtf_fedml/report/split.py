"""The paper's picture of a split, for the report: a bubble for each client and class, larger for more samples.

Clients come in blocks of one size, which the page lays side by side as far as the screen is wide.
"""

from __future__ import annotations

from html import escape

import numpy as np

from .classes import shortened
from .facts import Split
from .plot import dots

#: Clients of a block, and how many are drawn at all, chosen by even spacing.
BLOCK, MOST_CLIENTS = 20, 100
#: Sizes of bubbles: each is one path of the picture.
LEVELS = 8
#: Pixels of a cell, for few classes and for many; of a letter; above and below the cells.
_CELL, _SMALL, _LETTER, _BELOW = 13, 8, 6.2, 18
#: So many classes have cells of full size, and each its name.
_MANY = 24


def shown_clients(split: Split) -> list[int]:
    """The clients that are drawn."""
    total = len(split.counts)
    return np.unique(np.linspace(0, total - 1, min(total, MOST_CLIENTS)).round().astype(int)).tolist()


def split_picture(split: Split) -> str:
    """All blocks."""
    clients = shown_clients(split)
    names = shortened(split.class_names, 9)
    blocks = [_block(split.counts, clients[start : start + BLOCK], names) for start in range(0, len(clients), BLOCK)]
    # The page makes its columns as wide as the widest block.
    widest = max(width for width, _ in blocks)
    return f'<div class="blocks" style="--block:{widest}px">{"".join(block for _, block in blocks)}</div>'


def _block(counts: np.ndarray, clients: list[int], names: list[str]) -> tuple[int, str]:
    """The pixels that a block's picture is wide, and the picture."""
    cell = _CELL if len(names) <= _MANY else _SMALL
    every = 1 if len(names) <= _MANY else 5
    written = list(enumerate(names))[::every]
    left = round(max(len(name) for _, name in written) * _LETTER) + 8
    right, bottom = left + cell * len(clients), cell * len(names)
    lines = "".join(f"M{left} {cell * row + cell // 2}H{right}" for row in range(len(names)))
    texts = [
        f'<text x="{left - 6}" y="{cell * row + cell // 2 + 4}" text-anchor="end">{escape(name)}</text>'
        for row, name in written
    ]
    texts += [
        f'<text x="{left + cell * column + cell // 2}" y="{bottom + 14}" text-anchor="middle">{client}</text>'
        for column, client in enumerate(clients)
        if column % 5 == 0
    ]
    own = counts[clients]
    # The area grows with the number: the diameter with its root.
    levels = np.ceil(LEVELS * np.sqrt(own / max(1, counts.max()))).astype(int)
    bubbles = ""
    for level in range(1, LEVELS + 1):
        places = [(left + cell * k + cell // 2, cell * c + cell // 2) for k, c in np.argwhere(levels == level).tolist()]
        if places:
            width, opacity = max(1.5, level / LEVELS * cell), 0.4 + 0.6 * level / LEVELS
            bubbles += f'<path d="{dots(places)}" stroke-width="{width:.1f}" opacity="{opacity:.2f}"/>'
    title = f"Samples of clients {clients[0]} to {clients[-1]} by class"
    width, height = right + 8, bottom + _BELOW
    return width, (
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}">'
        f'<path class="grid" d="{lines}"/>{bubbles}{"".join(texts)}</svg>'
    )
