"""Callbacks that make a disk fill up, or a run wait, at a moment that a test has named by the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import mrtf_fedml


class FillsTheDisk(mrtf_fedml.Callback):
    """At the round FILL_AT, or at the `end`, calls the test's function that fills the disk."""

    #: How the test fills its disk.
    fill: Any = None

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        if os.environ.get("FILL_AT") == str(line["round"]):
            type(self).fill()

    def on_end(self, run: Any, summary: dict[str, Any]) -> None:
        if os.environ.get("FILL_AT") == "end":
            type(self).fill()


class Waits(mrtf_fedml.Callback):
    """Signals the end of the first round and the start of writing the predictions; then waits for the signal to end."""

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        if line["round"] == 1:
            self._wait(run.directory.path / "at_round")

    def on_end(self, run: Any, summary: dict[str, Any]) -> None:
        self._wait(run.directory.path / "at_end")

    def _wait(self, sign: Path) -> None:
        if os.environ.get("WAIT_AT") in (sign.name, "both"):
            sign.touch()
            deadline = time.monotonic() + 600
            while sign.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
