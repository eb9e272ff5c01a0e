"""`mrtf predict`: more data of the same kind, labelled by a finished run's model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ..data.more import read_more
from ..errors import UserError
from ..rounds.prediction import predicted_table
from ..rounds.store import RunStore
from ..settings import RunSettings
from .configuration import changed


def predict(run_dir: str, samples: str, out: str | None = None) -> str:
    """Write index, id, label, class name and confidence of each sample; returns how many there are, and where.

    Args:
        run_dir: the run's folder.
        samples: an .npz or .csv file, an image, or a folder of images.
        out: the file to write; `<name>.predictions.csv` in the current folder where it is not given.
    """
    store = RunStore.open(run_dir)
    store.search_where_it_began()
    weights, facts = store.read_model()
    settings = RunSettings.from_config(changed(store.read_config(), []))
    place = Path(samples).expanduser()
    inputs, ids = read_more(place, facts, settings.data)
    table = predicted_table(weights, facts, inputs, ids, _other_model)
    file = Path(out) if out else Path(f"{place.stem}.predictions.csv")
    try:
        file.write_text(table)
    except OSError as error:
        raise UserError(f"{str(file)!r} cannot be written ({error.strerror}); name another with --out") from None
    return f"{len(ids)} sample{'' if len(ids) == 1 else 's'} labelled: {file}"


def _other_model(*asked: Any) -> Any:
    """FedML's zoo, torchvision's models and the user's own have one door; FedML's import takes its seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ..fedml_bridge.zoo import build_model
    return build_model(*asked)
