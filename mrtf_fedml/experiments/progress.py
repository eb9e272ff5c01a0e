"""What a person sees while a comparison goes on: a live bar over all rounds on a terminal, a line per run elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tqdm import tqdm


class ComparisonProgress:
    """Counts the rounds of all runs together; lines are written above it."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def start(self, rounds: int, done: int, unit: str = "round", what: str = "all runs") -> None:
        """So many rounds there are in all, of which some are done already."""
        if rounds > done and sys.stderr.isatty():
            self._bar = tqdm(total=rounds, initial=done, unit=unit, desc=what, dynamic_ncols=True)

    def show(self, count: Callable[[], int]) -> None:
        """So many rounds are done by now; they are counted only where somebody sees it."""
        if self._bar is not None:
            self._bar.update(count() - self._bar.n)

    def tell(self, text: str) -> None:
        """A line of its own, which stays."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar where it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
