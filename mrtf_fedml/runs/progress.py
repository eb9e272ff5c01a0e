"""What a person sees while a run goes on: a live bar on a terminal, a line a round elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

_SHOWN = {
    "loss": "local_loss",
    "aggregated": "acc_aggregated",
    "ensemble": "acc_ensemble",
    "refined": "acc_refined",
}


class Progress:
    """Shows the rounds as they are done: the local loss and the accuracies that were measured."""

    def __init__(self, rounds: int, done: int = 0, quiet: bool = False) -> None:
        self.rounds = rounds
        self.quiet = quiet
        self._bar: tqdm | None = None
        if not quiet and sys.stderr.isatty():
            self._bar = tqdm(total=rounds, initial=done, unit="round", desc="rounds", dynamic_ncols=True)

    def show(self, line: dict[str, Any]) -> None:
        """A round's line of metrics.jsonl."""
        if self.quiet:
            return
        words = {word: f"{line[key]:.3f}" for word, key in _SHOWN.items() if line[key] is not None}
        if self._bar is not None:
            self._bar.set_postfix(words, refresh=False)
            self._bar.update()
            return
        told = "  ".join(f"{word} {value}" for word, value in words.items())
        print(f"round {line['round'] + 1}/{self.rounds}  {told}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar where it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
