"""`mrtf_fedml.run`: a configuration run in this process; what `mrtf run` leaves in files comes back as objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..algorithms import import_named
from ..data import load
from ..errors import UserError
from ..settings import RunSettings
from ..settings.sections import Config
from ..settings.yaml_file import read_config, warn_of_near_misses, with_values
from .guest import as_guest
from .playing import played
from .result import Result


def run(
    config: Mapping[str, Mapping[str, Any]] | str | Path, *, progress: bool | None = None, **settings: Any
) -> Result:
    """Run a configuration, in one process, and give its answer back.

    The run's folder is what `mrtf run` writes, at `run_dir` or under ./runs.

    Args:
        config: FedML's sections, as a mapping or as the path of a YAML file.
        progress: a live bar, or none; where it is not said, on a terminal and in a notebook.
        settings: keys that differ from the configuration's, as `--set` takes them: comm_round=3, learning_rate=0.05.

    Raises:
        UserError: a sentence that names what is wrong, and the remedy.
    """
    sections = _sections(config)
    import_named({**sections, "": settings})
    changed = with_values(sections, settings, "run()")
    warn_of_near_misses(changed)
    resolved = RunSettings.from_config(changed)
    if resolved.common.training_type != "simulation" or resolved.common.backend != "sp":
        raise UserError(
            f"run() plays all parties in this process, but training_type is {resolved.common.training_type} and "
            f"backend {resolved.common.backend}; use `mrtf run`, or run(config, training_type='simulation', "
            "backend='sp')"
        )
    with as_guest():
        dataset = load(resolved)
        names = dataset.class_names
        classes: list[Any] = list(range(len(names))) if names == [str(c) for c in range(len(names))] else names
        return played(changed, resolved, dataset, classes, None, progress, keep=True)


def _sections(config: Any) -> Config:
    if isinstance(config, str | os.PathLike):
        return read_config(Path(config).expanduser())
    if not isinstance(config, Mapping):
        raise UserError(f"run() takes a mapping of sections or the path of a YAML file, not a {type(config).__name__}")
    loose = [str(key) for key, values in config.items() if values is not None and not isinstance(values, Mapping)]
    if loose:
        raise UserError(
            f"run(): {loose[0]!r} stands in no section; write it as {{'train_args': {{...}}}} does, or give it as a "
            "keyword, run(config, key=value)"
        )
    return {str(section): dict(values or {}) for section, values in config.items()}
