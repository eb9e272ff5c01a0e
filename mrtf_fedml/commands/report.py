"""`mrtf report`: a run's report, written anew from its folder; or several runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..data import load
from ..errors import UserError
from ..report import write_report, write_side_by_side
from ..rounds.store import RunStore
from ..settings import RunSettings


def report(run_dirs: Sequence[str], output: str | None = None) -> Path:
    """Write the page and return its path.

    Of one run it is `report.html` in the run's folder, with the data loaded again for pictures and scores; where they
    are not to be had, the report does without pictures. Of several it is `side_by_side.html` beside the first of them.

    Args:
        run_dirs: the folders.
        output: another file to write.
    """
    stores = [RunStore.open(run_dir) for run_dir in run_dirs]
    return _written(stores, Path(output) if output else None)


def _written(stores: Sequence[RunStore], file: Path | None) -> Path:
    if len(stores) > 1:
        return write_side_by_side(stores, file or stores[0].path.parent / "side_by_side.html")
    (store,) = stores
    store.search_where_it_began()
    try:
        dataset = load(RunSettings.from_config(store.read_config()))
    except UserError as error:
        print(f"the report is written without pictures of the samples: {error}", file=sys.stderr)
        return write_report(store, None, None, file)
    return write_report(store, dataset.server_inputs, dataset.examiner, file)
