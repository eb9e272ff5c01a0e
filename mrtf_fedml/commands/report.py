"""`mrtf report`: a run's report, written anew from its folder."""

from __future__ import annotations

from pathlib import Path

from ..data import load
from ..report import write_report
from ..rounds.store import RunStore
from ..settings import RunSettings


def report(run_dir: str) -> Path:
    """Write `report.html` of a finished run; the data is loaded again for the pictures and the scores."""
    store = RunStore.open(run_dir)
    dataset = load(RunSettings.from_config(store.read_config()))
    return write_report(store, dataset.server_inputs, dataset.examiner)
