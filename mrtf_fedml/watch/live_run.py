"""What the files of a run's folder say about it now."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from ..callbacks.status import RUNNING, STATUS, STOPPED, process_start
from ..errors import UserError
from ..training.run_directory import METRICS, is_metrics_line

#: The time left is estimated from the median of this many rounds.
_RECENT_ROUNDS = 10
#: Two readings of a process's start time differ by less than this many seconds.
_CLOCK_TOLERANCE = 2.0


class LiveRun:
    """The folder of a run that may be growing: a server's run directory, or a silo's own folder.

    Attributes:
        status: status.json.
        metrics: the lines of metrics.jsonl, by increasing round.
        summary: summary.json; empty before the end.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / STATUS).is_file():
            raise UserError(f"{str(folder)!r} has no {STATUS}; name the folder of a run, as `mrtf run` prints it")
        self.status: dict[str, Any] = {}
        self.metrics: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self._inode, self._offset = -1, 0
        self.read()

    def read(self) -> None:
        """Read what is new."""
        # A damaged file is not an error here: the run that writes it reports it.
        self.status = _read_json(self.folder / STATUS) or self.status
        self.summary = _read_json(self.folder / "summary.json") if self.state != RUNNING else {}
        self._read_metrics()

    @property
    def state(self) -> str:
        """`running`, `finished` or `stopped`. A run whose process is gone has stopped."""
        state = str(self.status.get("state"))
        process = self.status.get("process")
        if state != RUNNING or not isinstance(process, dict) or process.get("host") != os.uname().nodename:
            return state
        started = process_start(int(process.get("id") or 0))
        expected = process.get("started")
        is_alive = started is not None and (expected is None or abs(started - expected) < _CLOCK_TOLERANCE)
        return RUNNING if is_alive else STOPPED

    @property
    def reason(self) -> str:
        """Why the run has stopped; empty if it has not."""
        if self.state != STOPPED:
            return ""
        return str(self.status.get("reason") or "its process has ended without writing the results")

    def seconds_left(self, now: float | None = None) -> float | None:
        """Seconds until the last round is finished, at the pace of the last rounds; None if it cannot be estimated."""
        rounds = self.status.get("rounds")
        if self.state != RUNNING or not self.metrics or not isinstance(rounds, int):
            return None
        recent = self.metrics[-_RECENT_ROUNDS:]
        per_round = statistics.median(
            (line.get("client_seconds") or 0) + (line.get("server_seconds") or 0) for line in recent
        )
        left = rounds - 1 - self.metrics[-1]["round"]
        in_round = 0.0
        if self.status.get("round") == self.metrics[-1]["round"] + 1:
            in_round = (now or time.time()) - float(self.status.get("round_started") or 0)
        return max(0.0, left * per_round - min(in_round, per_round))

    def _read_metrics(self) -> None:
        """Read appended lines. A resumed run replaces the file, which is then read from the start."""
        try:
            with (self.folder / METRICS).open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode or os.fstat(file.fileno()).st_size < self._offset:
                    self.metrics, self._inode, self._offset = [], inode, 0
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        for text in complete.splitlines():
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if is_metrics_line(line):
                # A silo trains a round again if its server was resumed, and begins again with a new run.
                while self.metrics and self.metrics[-1]["round"] >= line["round"]:
                    self.metrics.pop()
                self.metrics.append(line)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
