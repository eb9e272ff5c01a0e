"""When a student need be taught no longer: it names the classes that its targets name, and no better for a while.

No label is read: what is counted is how often the student's largest class is its target's, on the batches that it
learns from anyway. The distance to the targets would not do: it goes on falling long after the classes stand still.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: A look takes at most so many steps, since a pass over a large set may be longer than the whole distillation.
LONGEST_LOOK = 25


class Patience:
    """Counts agreement by looks: a look is one pass over the samples, or 25 steps where a pass has more.

    Counts are whole numbers, so several processes that add theirs up come to the same end.
    """

    def __init__(self, looks: int, samples: int, batch_size: int) -> None:
        """Stop after `looks` looks without a larger share of agreement than the best before them; 0 never stops."""
        self.looks = looks
        self._steps = min(LONGEST_LOOK, math.ceil(samples / batch_size))
        self._agreed: list[Tensor] = []
        self._rows = 0
        self._best = -1.0
        self._waited = 0

    def is_over(self, agreed: Tensor, rows: int) -> bool:
        """After a step, in which the student agreed with the targets on so many of so many rows.

        >>> patience = Patience(looks=2, samples=10, batch_size=10)
        >>> [patience.is_over(torch.tensor(agreed), 10) for agreed in (5, 7, 7, 8, 8, 7)]
        [False, False, False, False, False, True]
        """
        self._agreed.append(agreed)
        self._rows += rows
        if len(self._agreed) < self._steps:
            return False
        # Only here does the host wait for what was counted.
        share = float(torch.stack(self._agreed).sum()) / self._rows
        self._agreed, self._rows = [], 0
        self._waited = 0 if share > self._best else self._waited + 1
        self._best = max(share, self._best)
        return self._waited >= self.looks


def agreement(logits: Tensor, targets: Tensor) -> Tensor:
    """On how many rows the largest class is the same, a scalar; [B, C], or [B, C, T] with T rows per sample."""
    return (logits.detach().argmax(dim=1) == targets.argmax(dim=1)).sum()
