"""Callbacks that make a disk fill up, or a run wait, at a moment that a test has named by the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import mrtf_fedml


class FillsTheDisk(mrtf_fedml.Callback):
    """At the round FILL_AT, or at the `end`, calls what the test has put there to leave no room."""

    #: How the test fills its disk.
    fill: Any = None

    def on_round(self, run: Any, line: dict[str, Any]) -> None:
        if os.environ.get("FILL_AT") == str(line["round"]):
            type(self).fill()

    def on_end(self, run: Any, summary: dict[str, Any]) -> None:
        if os.environ.get("FILL_AT") == "end":
            type(self).fill()


class Waits(mrtf_fedml.Callback):
    """Says that the first round is there, and that the answer is about to be written; then waits to be told to end."""

    def on_round(self, run: Any, line: dict[str, Any]) -> None:
        if line["round"] == 1:
            self._wait(run.store.path / "at_round")

    def on_end(self, run: Any, summary: dict[str, Any]) -> None:
        self._wait(run.store.path / "at_end")

    def _wait(self, sign: Path) -> None:
        if os.environ.get("WAIT_AT") in (sign.name, "both"):
            sign.touch()
            deadline = time.monotonic() + 600
            while sign.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
