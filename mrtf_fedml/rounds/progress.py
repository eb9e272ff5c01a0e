"""What a person sees while a run goes on: a live bar on a terminal, a line per round elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
#: Shown under another word, or beside it, or at the end alone.
_UNSHOWN = (
    *("estimated_accuracy", "estimated_error", "estimated_unweighed", "estimated_unweighed_error"),
    *("estimated_flattery", "estimated_gain", "estimated_gain_error", "refined_answers", "refined_share"),
)
_COLUMNS = 80
#: How many numbers stand beside the bar, which needs its room too.
_BESIDE = 2


class Progress(Callback):
    """Shows the rounds as they are done: a line each, and below them a live bar where one is wanted."""

    def __init__(self, wants_bar: bool | None = None) -> None:
        """A bar and lines, or nothing at all; None: lines, with a bar on a terminal."""
        self.quiet = wants_bar is False
        self.wants_bar = wants_bar
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
        text = round_text(line, run.rounds)
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
            return
        if sys.stderr.isatty():
            # A notebook keeps one bar; a terminal keeps what has gone by.
            self._bar.write(text, file=sys.stderr)
        numbers = {**every_runs_numbers(line), **own_numbers(line)}
        self._bar.set_postfix(dict(list(numbers.items())[:_BESIDE]), refresh=False)
        self._bar.update()

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Leave the bar where it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def round_text(line: Mapping[str, Any], rounds: int) -> str:
    """The round in lines of at most 80 columns.

    Of the numbers that every run has, those that would pass the first line are left out. What the algorithm or a
    callback measures is always shown, on further lines where there is no room.

    >>> print(round_text({"round": 1, "acc_refined": 0.981, "local_loss": 0.5, "drift": 0.25}, 20))
    round  2/20  refined 0.981  loss 0.500  drift 0.250
    """
    head = f"round {line['round'] + 1:>{len(str(rounds))}}/{rounds}"
    lines = [head]
    for word, value in every_runs_numbers(line).items():
        longer = f"{lines[0]}  {word} {value}"
        lines[0] = longer if len(longer) <= _COLUMNS else lines[0]
    for word, value in own_numbers(line).items():
        longer = f"{lines[-1]}  {word} {value}"
        if len(longer) <= _COLUMNS:
            lines[-1] = longer
        else:
            lines.append(f"{' ' * len(head)}  {word} {value}")
    return "\n".join(lines)


def every_runs_numbers(line: Mapping[str, Any]) -> dict[str, str]:
    """The numbers that a person wants to see go by of any run, by the words for them.

    >>> every_runs_numbers({"round": 0, "estimated_accuracy": 0.781, "estimated_error": 0.0189})
    {'estimated': '0.78 ± 0.02'}
    """
    # A model between the refined one and the base's answers: what is scored first is the answer.
    shown = {"acc": "answer", **_SHOWN} if line.get("refined_share", 1) < 1 else _SHOWN
    words = _as_text({word: line.get(key) for key, word in shown.items()})
    if "estimated" in words and "estimated_error" in line:
        words["estimated"] = f"{line['estimated_accuracy']:.2f} ± {line['estimated_error']:.2f}"
    return words


def own_numbers(line: Mapping[str, Any]) -> dict[str, str]:
    """What the algorithm, or a callback, has measured.

    >>> own_numbers({"round": 0, "local_loss": 0.5, "acc_vote": 0.75, "drift": 0.25, "visits": 3})
    {'vote': '0.750', 'drift': '0.250', 'visits': '3'}
    """
    own = [key for key in line if key not in STANDARD and key not in _UNSHOWN]
    return _as_text({key.removeprefix("acc_"): line[key] for key in own})


def _as_text(numbers: Mapping[str, Any]) -> dict[str, str]:
    return {
        word: f"{value:.3f}" if isinstance(value, float) else str(value)
        for word, value in numbers.items()
        if isinstance(value, int | float)
    }
