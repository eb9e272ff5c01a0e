"""Which runs a comparison is made of. A run is known by its settings, so that none is done twice."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..algorithms import algorithm_named
from ..errors import UserError
from ..settings import RunSettings
from ..settings.baselines import BaselineSettings
from ..settings.mrtf import PRESETS, MrTFSettings
from ..settings.yaml_file import Config, with_changes
from ..version import __version__

#: The modules of the paper, one after another, by settings of MrTF alone, from the paper's words.
ABLATION: dict[str, dict[str, Any]] = {
    label: {
        "refine_steps": None if teacher else 0,
        "teacher": teacher or "avg_prob",
        "entropy_weights": rectified,
        "self_teaching": rectified,
        "cluster_refinery": clustered,
    }
    for label, teacher, rectified, clustered in (
        ("PA", None, False, False),
        ("AL", "avg_logit", False, False),
        ("ST", "avg_prob", False, False),
        ("ST+RD", "avg_prob", True, False),
        ("ST+RD+CLR", "avg_prob", True, True),
    )
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        label: of what is compared: an algorithm, with its preset where several are, or a bar of the ablation.
        seed: its random_seed.
        point: the values of the grid, as `key=value` joined by commas; empty without a grid.
        config: FedML's sections.
        key: names the run by its settings; runs of the same settings are one.
    """

    label: str
    seed: int
    point: str
    config: Config
    key: str


def planned(
    config: Config,
    labels: Sequence[str],
    seeds: int,
    grid: Sequence[str] = (),
    ablation: bool = False,
    vary: Sequence[str] = (),
) -> list[Trial]:
    """All runs of a comparison, those of one seed together.

    Args:
        config: FedML's sections.
        labels: algorithms, as `FedAvg` or `MrTF:paper`; or bars of the ablation.
        seeds: how many, from random_seed upwards.
        grid: `key=value,value`, of which every combination is run.
        ablation: whether `labels` are bars of the ablation.
        vary: changes to each algorithm, as words `key=value,value`; every combination of one entry's words stands
            beside the unchanged algorithm under a label of its own, and entries are not combined with each other.
    """
    if seeds < 1:
        raise UserError(f"--seeds is {seeds}; at least one is needed")
    if len(set(labels)) < len(labels):
        raise UserError(f"--algorithms names one twice ({', '.join(labels)}); name each once")
    first = RunSettings.from_config(config).common.random_seed
    variants = {label: _ablated(config, label) if ablation else _variant(config, label) for label in labels}
    variants = _varied(variants, vary)
    trials = []
    for seed, (label, variant) in itertools.product(range(first, first + seeds), variants.items()):
        for point in _points(grid):
            changed = with_changes(variant, [f"common_args.random_seed={seed}", *point])
            trials.append(Trial(label, seed, ", ".join(point), changed, key_of(changed)))
    return trials


def key_of(config: Config) -> str:
    """A short name of all that a run's result depends on.

    Where it writes, whom it tells, and keys that its algorithm does not read are left out. So are defaults, written out
    or not, and the preset, whose values are there in its place; and the number of threads: it is what `--jobs` leaves
    to a run, and changes rounding alone.
    """
    settings = RunSettings.from_config(config)
    algorithm = algorithm_named(settings.train.federated_optimizer)
    relevant: dict[str, dict[str, Any]] = {section: dict(values) for section, values in config.items()}
    defaults = RunSettings().to_config()
    for section, values in settings.to_config().items():
        relevant.setdefault(section, {}).update(values)
        for key, value in defaults[section].items():
            if relevant[section][key] == value:
                del relevant[section][key]
    relevant.setdefault("train_args", {})["federated_optimizer"] = algorithm.name
    for section, part in (("train_args", BaselineSettings), ("mrtf_args", MrTFSettings)):
        for field in dataclasses.fields(part):
            if not field.name.startswith(algorithm.own_keys):
                relevant[section].pop(field.name, None)
    relevant["mrtf_args"].pop("preset", None)
    relevant.pop("tracking_args", None)
    relevant["common_args"].pop("run_dir", None)
    relevant["device_args"].pop("threads", None)
    relevant["mrtf_fedml"] = {"version": __version__, "file": _file_stamp(settings.data.data_file)}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _file_stamp(name: str | None) -> Any:
    """Tells a user's file from the same name with other contents."""
    if name is None or not Path(name).is_file():
        return None
    status = Path(name).stat()
    return [status.st_size, status.st_mtime_ns]


def _variant(config: Config, label: str) -> Config:
    """The configuration with this algorithm, in one process: every backend gives the same answer."""
    name, colon, preset = label.partition(":")
    algorithm = algorithm_named(name).name
    changed = _with(config, "train_args", {"federated_optimizer": algorithm})
    changed = _with(changed, "common_args", {"training_type": "simulation"})
    changed = _with(changed, "comm_args", {"backend": "sp"})
    if not colon:
        return changed
    if algorithm != "MrTF" or preset not in PRESETS:
        raise UserError(
            f"--algorithms: {label!r} names no preset; only MrTF has some: "
            + ", ".join(f"MrTF:{known}" for known in PRESETS)
        )
    return _with(changed, "mrtf_args", {"preset": preset})


def _varied(variants: Mapping[str, Config], vary: Sequence[str]) -> dict[str, Config]:
    """Each variant and, after it, its variations; one that makes no difference to an algorithm is left out."""
    varied = {}
    for label, config in variants.items():
        varied[label], unchanged = config, key_of(config)
        for entry in vary:
            for point in _points(entry.split(), "--vary"):
                changed = with_changes(config, point)
                if key_of(changed) != unchanged:
                    varied[f"{label}, {', '.join(point)}"] = changed
    return varied


def _ablated(config: Config, label: str) -> Config:
    switches = {key: value for key, value in ABLATION[label].items() if value is not None}
    return _with(_variant(config, "MrTF:paper"), "mrtf_args", switches)


def _with(config: Config, section: str, values: Mapping[str, Any]) -> Config:
    changed = {name: dict(content) for name, content in config.items()}
    changed.setdefault(section, {}).update(values)
    return changed


def _points(grid: Sequence[str], option: str = "--grid") -> list[tuple[str, ...]]:
    """Every combination of the values of the keys.

    >>> _points(["learning_rate=0.1,0.01", "epochs=1"])
    [('learning_rate=0.1', 'epochs=1'), ('learning_rate=0.01', 'epochs=1')]
    """
    axes = []
    for axis in grid:
        key, equals, values = axis.partition("=")
        words = [value.strip() for value in values.split(",") if value.strip()]
        if not equals or not words:
            raise UserError(f"{option} takes key=value,value, not {axis!r}")
        axes.append([f"{key.strip()}={value}" for value in words])
    return list(itertools.product(*axes))
