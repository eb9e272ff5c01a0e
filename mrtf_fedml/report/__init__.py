"""A run told to a person: `report.html`, one file that needs no network and no script."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ..data.examiner import Examiner
from ..rounds.store import RunStore


def write_report(store: RunStore, inputs: Tensor | None, examiner: Examiner | None) -> Path:
    """Write `report.html` in the run's folder from what the folder holds, and return its path.

    A run that was interrupted, that has no labels or that was never scored has a report too; what is not
    known is left out, and the report says so. The same folder always gives the same bytes.

    Args:
        store: the run's folder.
        inputs: the server's inputs [M, ...], for pictures of the samples; None shows none.
        examiner: marks the answer; None falls back on the scores that the run's summary holds, if any.
    """
    # Imported here, since this needs matplotlib and every process of a run imports this module.
    from .facts import read_facts
    from .page import page

    store.write_text("report.html", page(read_facts(store, inputs, examiner), inputs))
    return store.path / "report.html"


__all__ = ["write_report"]
