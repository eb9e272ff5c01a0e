"""status.json: what a run is doing now. `mrtf watch` reads it."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import phases
from ..training.evaluation import metric_label
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

STATUS = "status.json"

#: Values of `state`.
RUNNING, FINISHED, STOPPED = "running", "finished", "stopped"
#: Phases in addition to those of mrtf_fedml.phases.
WAITING_FOR_CLIENTS, WAITING_FOR_SERVER = "waiting for clients", "waiting for the server"
WAITING_FOR_TASK, WRITING = "waiting for a task", "writing the results"

_LOGGER = logging.getLogger("mrtf_fedml")
_MAX_WARNINGS = 20
_MAX_WARNING_CHARACTERS = 500


class StatusFile:
    """Writes status.json when a field has changed. As a context manager it records how the run has ended.

    The file is replaced as a whole and not synced to disk: after a power cut nobody needs it. An error of the disk is
    ignored here, since the run reports it when it writes its results.

    Args:
        folder: of the run.
        fields: of the status.
    """

    def __init__(self, folder: Path, **fields: Any) -> None:
        self._path = folder / STATUS
        self._fields: dict[str, Any] = {
            "state": RUNNING,
            "reason": "",
            "process": {"id": os.getpid(), "started": process_start(os.getpid()), "host": os.uname().nodename},
            "started": time.time(),
            **fields,
        }
        self._warnings = _WarningCollector()
        self._content = ""
        _LOGGER.addHandler(self._warnings)
        self.update()

    def update(self, **fields: Any) -> None:
        """Set fields; write the file if anything has changed, also the warnings logged since the last time."""
        self._fields |= fields
        content = json.dumps({**self._fields, "warnings": list(self._warnings.records)})
        if content == self._content:
            return
        self._content = content
        temporary = self._path.with_name(f".{self._path.name}.part")
        try:
            temporary.write_text(content)
            temporary.replace(self._path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def begin_round(self, round_index: int, clients: Sequence[int]) -> None:
        """These clients, in addition to others of the same round, begin to train."""
        if self._fields.get("round") != round_index:
            self._fields |= {"round": round_index, "round_started": time.time(), "selected": [], "received": []}
        self.update(phase=phases.LOCAL, selected=sorted({*self._fields["selected"], *clients}))

    def __enter__(self) -> StatusFile:
        phases.listeners.append(self._on_phase)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        phases.listeners.remove(self._on_phase)
        self.close(None if kind is None else str(error) or kind.__name__)

    def close(self, reason: str | None = None) -> None:
        """The run has ended: normally, or for this reason."""
        self.update(state=FINISHED if reason is None else STOPPED, reason=reason or "")
        _LOGGER.removeHandler(self._warnings)

    def _on_phase(self, name: str) -> None:
        # Every client begins the phase of local training.
        if self._fields.get("phase") != name:
            self.update(phase=name)


class StatusWriter(Callback):
    """Keeps the round, the phase and the selected clients in status.json."""

    def __init__(self, status: StatusFile) -> None:
        self._status = status

    def on_start(self, run: Run) -> None:
        """The metrics' labels, for the charts."""
        self._status.update(metric_labels={metric.name: metric_label(metric) for metric in run.algorithm.metrics})

    def on_round_begin(self, run: Run, clients: Sequence[int]) -> None:
        """The clients begin to train. A second call in a round adds clients, or repeats one's task."""
        self._status.begin_round(run.state.round, clients)

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The results are being written."""
        self._status.update(phase=WRITING)


class _WarningCollector(logging.Handler):
    """Keeps the last warnings. It writes no file: a log record may come from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: deque[dict[str, Any]] = deque(maxlen=_MAX_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the message and its time."""
        with suppress(Exception):
            self.records.append({"time": record.created, "text": record.getMessage()[:_MAX_WARNING_CHARACTERS]})


def process_start(process: int) -> float | None:
    """When a process of this machine was started; None if there is none of this id.

    >>> process_start(os.getpid()) is not None
    True
    """
    import psutil  # only here: it is not needed to import this module

    try:
        return float(psutil.Process(process).create_time())
    except psutil.Error:
        return None
