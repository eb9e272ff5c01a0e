"""Callbacks as a user would write them."""

from __future__ import annotations

import time
from typing import Any

import mrtf_fedml


class Watching(mrtf_fedml.Callback):
    """Writes its observations next to the run directory, and adds a metric to each line."""

    def on_start(self, run: Any) -> None:
        self._note(run, f"start {run.state.round} of {run.rounds}")

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        line["confidence"] = float(run.prediction_logits().softmax(dim=1).max(dim=1).values.mean())
        self._note(run, f"round {line['round']}")

    def on_end(self, run: Any, summary: dict[str, Any]) -> None:
        self._note(run, f"end {summary['rounds']}")

    def _note(self, run: Any, text: str) -> None:
        with (run.directory.path / "watched.txt").open("a") as file:
            file.write(f"{text}\n")


class Enough(mrtf_fedml.Callback):
    """One round is enough."""

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        run.stop("enough")


class EnoughAlready(mrtf_fedml.Callback):
    """Asks the run to stop before it has begun."""

    def on_start(self, run: Any) -> None:
        run.stop("enough already")


class Stalling(mrtf_fedml.Callback):
    """Holds the second round, after the first one's state is on disk, until somebody kills the process."""

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        if line["round"] == 1:
            (run.directory.path / "stalled").touch()
            time.sleep(600)


class Wordy(mrtf_fedml.Callback):
    """What it adds is no number."""

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        line["mood"] = run.prediction_logits()


class Demanding(mrtf_fedml.Callback):
    """Cannot be made without an argument."""

    def __init__(self, patience: int) -> None:
        self.patience = patience


class NoCallback:
    """Not derived from Callback."""
