"""Which runs a comparison is made of. A run is known by its settings, so that none is done twice."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..algorithms import OUR_PREFIX, algorithm_named, algorithm_names, algorithm_of
from ..errors import UserError
from ..settings import PRESETS, RunSettings, section_keys
from ..settings.mrtf import without_preset
from ..settings.sections import Config
from ..settings.yaml_file import with_changes
from ..version import __version__
from .stamps import stamps_of

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
        labels: algorithms, as `FedAvg`, `MrTF:paper` or `MrTF:tuned+Scaffold`; or bars of the ablation.
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


def import_labelled(labels: Sequence[str]) -> None:
    """Import the algorithms, and the bases, that are named as `package.module:Class`: they have keys of their own."""
    for label in labels:
        word, _, base = label.partition("+")
        for name in (_with_preset(word)[0], base):
            if ":" in name:
                algorithm_named(name, "--algorithms")


def key_of(config: Config) -> str:
    """A short name of all that a run's result depends on.

    Where it writes, whom it tells, and keys that its algorithm does not read are left out. Defaults count the same
    whether they are written out or not, and the preset by its values. So is the number of threads left out: it is what
    `--jobs` leaves to a run, and changes rounding alone.
    """
    settings = RunSettings.from_config(config)
    algorithm = algorithm_of(settings)
    known = {key for keys in section_keys().values() for key in keys}
    relevant: dict[str, dict[str, Any]] = {
        section: {key: value for key, value in values.items() if key not in known}
        for section, values in config.items()
        if section != "tracking_args"
    }
    for ours in (settings.to_config(), algorithm.sections()):
        for section, values in ours.items():
            relevant.setdefault(section, {}).update(values)
    relevant["train_args"]["federated_optimizer"] = algorithm.name
    for section, key in (
        ("mrtf_args", "preset"),
        ("common_args", "run_dir"),
        ("common_args", "keep_states"),
        ("device_args", "threads"),
    ):
        relevant.get(section, {}).pop(key, None)
    relevant["inputs"] = {"version": __version__, **stamps_of(settings, algorithm)}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _variant(config: Config, label: str) -> Config:
    """The configuration with this algorithm, in one process: every backend gives the same answer.

    Args:
        config: FedML's sections.
        label: `FedAvg`, `package.module:Class`, `MrTF:tuned`, `MrTF:tuned+Scaffold`, `FedDF+Scaffold`.
    """
    word, plus, base = label.partition("+")
    name, preset = _with_preset(word)
    algorithm = algorithm_named(name)
    changed = _with(config, "train_args", {"federated_optimizer": name})
    changed = _with(changed, "common_args", {"training_type": "simulation"})
    changed = _with(changed, "comm_args", {"backend": "sp"})
    if preset:
        section = algorithm.section_name()
        changed[section] = {**without_preset(changed.get(section, {})), "preset": preset}
    if plus:
        if "base" not in [field.name for field in dataclasses.fields(algorithm.Settings)]:
            raise UserError(f"--algorithms: {label!r} names a base, but {algorithm.name} has none; MrTF and FedDF have")
        algorithm_named(base, "--algorithms: the base")
        changed = _with(changed, algorithm.section_name(), {"base": base})
    return changed


def _with_preset(word: str) -> tuple[str, str]:
    """The algorithm and its preset: `MrTF:tuned` has one, `package.module:Class` is a name.

    A file may be called as the algorithm in it is: then what follows is its class, and no preset.
    """
    name, colon, preset = word.rpartition(":")
    known = [known.lower() for known in algorithm_names()]
    if not colon or (name.lower() + ":" == OUR_PREFIX and preset.lower() in known):
        return word, ""
    if name.lower() in known and (preset in PRESETS or importlib.util.find_spec(name) is None):
        if algorithm_named(name).name != "MrTF" or preset not in PRESETS:
            raise UserError(
                f"--algorithms: {word!r} names no preset; only MrTF has some: "
                + ", ".join(f"MrTF:{known}" for known in PRESETS)
            )
        return name, preset
    return word, ""


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
