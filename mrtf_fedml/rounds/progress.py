"""What a person sees while a run goes on: a live bar on a terminal, a line per round elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from .callbacks import Callback
from .scores import STANDARD

if TYPE_CHECKING:
    from .loop import Run

#: The answer's own accuracy first: a narrow terminal cuts the line at its end.
_SHOWN = {
    "acc_refined": "refined",
    "estimated_accuracy": "estimated",
    "acc_aggregated": "aggregated",
    "acc_ensemble": "ensemble",
    "local_loss": "loss",
}
#: Shown under another word, or beside it.
_UNSHOWN = ("estimated_accuracy", "estimated_error")
_COLUMNS = 80
#: How many numbers stand beside the bar, which needs its room too.
_BESIDE = 2


class Progress(Callback):
    """Shows the rounds as they are done: a line each, and below them a live bar where one is wanted."""

    def __init__(self, bar: bool | None = None) -> None:
        """A bar and lines, or nothing at all; None: lines, with a bar on a terminal."""
        self.quiet = bar is False
        self.wants_bar = bar
        self._bar: tqdm | None = None

    def on_start(self, run: Run) -> None:
        """Begin where the run begins."""
        if self.wants_bar or (self.wants_bar is None and sys.stderr.isatty()):
            self._bar = tqdm(
                total=run.rounds,
                initial=run.state.round,
                unit="round",
                desc="rounds",
                dynamic_ncols=sys.stderr.isatty(),
                ncols=None if sys.stderr.isatty() else _COLUMNS,
                file=sys.stderr,
            )

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """The round's numbers."""
        if self.quiet:
            return
        words = shown(line)
        if self._bar is None:
            print(told(line["round"], run.rounds, words), file=sys.stderr, flush=True)
            return
        if sys.stderr.isatty():
            # A notebook keeps one bar; a terminal keeps what has gone by.
            self._bar.write(told(line["round"], run.rounds, words), file=sys.stderr)
        self._bar.set_postfix(dict(list(words.items())[:_BESIDE]), refresh=False)
        self._bar.update()

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Leave the bar where it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def told(round_index: int, rounds: int, words: dict[str, str]) -> str:
    """A line of at most 80 columns; the numbers that would pass it are left out.

    >>> told(1, 20, {"refined": "0.981", "loss": "0.500"})
    'round  2/20  refined 0.981  loss 0.500'
    """
    line = f"round {round_index + 1:>{len(str(rounds))}}/{rounds}"
    for word, value in words.items():
        longer = f"{line}  {word} {value}"
        line = longer if len(longer) <= _COLUMNS else line
    return line


def shown(line: dict[str, Any]) -> dict[str, str]:
    """The numbers of a line that a person wants to see go by.

    >>> shown({"round": 0, "local_loss": 0.5, "acc_refined": None, "drift": 0.25})
    {'loss': '0.500', 'drift': '0.250'}
    >>> shown({"round": 0, "estimated_accuracy": 0.781, "estimated_error": 0.0189})
    {'estimated': '0.78 ± 0.02'}
    """
    own = {key: key.removeprefix("acc_") for key in line if key not in STANDARD and key not in _UNSHOWN}
    words = {
        word: f"{line[key]:.3f}" if isinstance(line[key], float) else str(line[key])
        for key, word in {**_SHOWN, **own}.items()
        if isinstance(line.get(key), int | float)
    }
    if "estimated" in words:
        words["estimated"] = f"{line['estimated_accuracy']:.2f} ± {line['estimated_error']:.2f}"
    return words
