"""What a person sees while a run goes on: a live bar on a terminal, a line per round elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from .callbacks import Callback
from .scores import STANDARD

if TYPE_CHECKING:
    from .loop import Run

_SHOWN = {
    "local_loss": "loss",
    "acc_aggregated": "aggregated",
    "acc_ensemble": "ensemble",
    "acc_refined": "refined",
}


class Progress(Callback):
    """Shows the rounds as they are done: the local loss, the accuracies, and what the algorithm measured itself."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: tqdm | None = None

    def on_start(self, run: Run) -> None:
        """Begin where the run begins."""
        if not self.quiet and sys.stderr.isatty():
            self._bar = tqdm(total=run.rounds, initial=run.state.round, unit="round", desc="rounds", dynamic_ncols=True)

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The round's numbers."""
        if self.quiet:
            return
        words = shown(line)
        if self._bar is not None:
            self._bar.set_postfix(words, refresh=False)
            self._bar.update()
            return
        text = "  ".join(f"{word} {value}" for word, value in words.items())
        print(f"round {line['round'] + 1}/{run.rounds}  {text}", file=sys.stderr, flush=True)

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Leave the bar where it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def shown(line: dict[str, Any]) -> dict[str, str]:
    """The numbers of a line that a person wants to see go by.

    >>> shown({"round": 0, "local_loss": 0.5, "acc_refined": None, "drift": 0.25})
    {'loss': '0.500', 'drift': '0.250'}
    """
    own = {key: key.removeprefix("acc_") for key in line if key not in STANDARD}
    return {
        word: f"{line[key]:.3f}" if isinstance(line[key], float) else str(line[key])
        for key, word in {**_SHOWN, **own}.items()
        if isinstance(line.get(key), int | float)
    }
