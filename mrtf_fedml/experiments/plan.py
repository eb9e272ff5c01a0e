"""The runs of a comparison. A run is identified by its settings and inputs, so that none is done twice."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..algorithms import OUR_PREFIX, Algorithm, algorithm_by_name, algorithm_names, build_algorithm
from ..config import PRESETS, RunSettings, section_keys
from ..config.loader import apply_overrides
from ..config.presets import RESOLVED_SECTION, explicit_mrtf_args
from ..config.schema import Config
from ..config.user_code import import_object
from ..errors import UserError
from ..training.run_directory import fingerprint_files
from ..version import __version__

#: The bars of the paper's ablation, as settings of MrTF.
ABLATION: dict[str, dict[str, Any]] = {
    label: {
        "refine_steps": None if teacher else 0,
        "teacher": teacher or "avg_prob",
        "teacher_weighting": "entropy" if rectified else "uniform",
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
        label: the compared algorithm, with its preset where it has one, or a bar of the ablation.
        seed: its random_seed.
        point: the values of the grid, as `key=value` joined by commas; empty without a grid.
        config: FedML's sections.
        key: identifies the run by its settings; trials with equal keys share one run.
    """

    label: str
    seed: int
    point: str
    config: Config
    key: str


def plan_trials(
    config: Config,
    labels: Sequence[str],
    seeds: int,
    grid: Sequence[str] = (),
    ablation: bool = False,
    vary: Sequence[str] = (),
) -> list[Trial]:
    """All trials of a comparison, those of one seed together.

    Args:
        config: FedML's sections.
        labels: algorithms, as `FedAvg`, `MrTF:paper` or `MrTF:tuned+Scaffold`; or bars of the ablation.
        seeds: number of seeds, from random_seed upwards.
        grid: `key=value,value`; every combination is run.
        ablation: whether `labels` are bars of the ablation.
        vary: changes to each algorithm, as words `key=value,value`; every combination of one entry's words is
            compared with the unchanged algorithm under its own label. Entries are not combined with each other.
    """
    if seeds < 1:
        raise UserError(f"--seeds is {seeds}; at least one is needed")
    if len(set(labels)) < len(labels):
        raise UserError(f"--algorithms names an algorithm twice ({', '.join(labels)}); name each once")
    first = RunSettings.from_config(config).common.random_seed
    variants = {
        label: _configure_ablation(config, label) if ablation else _configure(config, label) for label in labels
    }
    variants = _add_variations(variants, vary)
    trials = []
    for seed, (label, variant) in itertools.product(range(first, first + seeds), variants.items()):
        for point in _grid_points(grid):
            changed = apply_overrides(variant, [f"common_args.random_seed={seed}", *point])
            trials.append(Trial(label, seed, ", ".join(point), changed, run_key(changed)))
    return trials


def import_algorithms(labels: Sequence[str]) -> None:
    """Import algorithms and bases that are named `package.module:Class`, so that their settings keys are known."""
    for label in labels:
        word, _, base = label.partition("+")
        for name in (_split_preset(word)[0], base):
            if ":" in name:
                algorithm_by_name(name, "--algorithms")


def run_key(config: Config) -> str:
    """A hash of everything that a run's result depends on.

    Output paths, tracking, and keys that its algorithm does not read are excluded. A default counts the same whether
    it is written out or not, and a preset by its values. The number of threads is excluded: it follows from `--jobs`
    and changes only rounding.
    """
    settings = RunSettings.from_config(config)
    algorithm = build_algorithm(settings)
    known = {key for keys in section_keys().values() for key in keys}
    relevant: dict[str, dict[str, Any]] = {
        section: {key: value for key, value in values.items() if key not in known}
        for section, values in config.items()
        if section not in ("tracking_args", RESOLVED_SECTION)
    }
    for ours in (settings.to_config(), algorithm.sections()):
        for section, values in ours.items():
            relevant.setdefault(section, {}).update(values)
    relevant["train_args"]["federated_optimizer"] = algorithm.name
    for section, key in (
        ("mrtf_args", "preset"),
        ("common_args", "run_dir"),
        ("common_args", "keep_state"),
        ("device_args", "threads"),
    ):
        relevant.get(section, {}).pop(key, None)
    relevant["inputs"] = {"version": __version__, **input_stamps(settings, algorithm)}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _configure(config: Config, label: str) -> Config:
    """The configuration with this algorithm, in one process: every backend gives the same predictions.

    Args:
        config: FedML's sections.
        label: `FedAvg`, `package.module:Class`, `MrTF:tuned`, `MrTF:tuned+Scaffold`, `FedDF+Scaffold`.
    """
    word, plus, base = label.partition("+")
    name, preset = _split_preset(word)
    algorithm = algorithm_by_name(name)
    # Their curves are compared round by round: no run stops earlier than the others.
    changed = _with_section(config, "train_args", {"federated_optimizer": name, "early_stopping": None})
    changed = _with_section(changed, "common_args", {"training_type": "simulation"})
    changed = _with_section(changed, "comm_args", {"backend": "sp"})
    if preset:
        changed[algorithm.section_name()] = {**explicit_mrtf_args(changed), "preset": preset}
        changed.pop(RESOLVED_SECTION, None)
    if plus:
        if "base" not in [field.name for field in dataclasses.fields(algorithm.Settings)]:
            raise UserError(f"--algorithms: {label!r} names a base, but {algorithm.name} has none; MrTF and FedDF have")
        algorithm_by_name(base, "--algorithms: the base")
        changed = _with_section(changed, algorithm.section_name(), {"base": base})
    return changed


def _split_preset(word: str) -> tuple[str, str]:
    """The algorithm and its preset: `MrTF:tuned` has a preset, `package.module:Class` has none.

    A user's module may have the name of an algorithm; then the second part is a class and not a preset.
    """
    name, colon, preset = word.rpartition(":")
    known = [known.lower() for known in algorithm_names()]
    if not colon or (name.lower() + ":" == OUR_PREFIX and preset.lower() in known):
        return word, ""
    if name.lower() in known and (preset in PRESETS or importlib.util.find_spec(name) is None):
        if algorithm_by_name(name).name != "MrTF" or preset not in PRESETS:
            raise UserError(
                f"--algorithms: {word!r} names no preset; only MrTF has some: "
                + ", ".join(f"MrTF:{known}" for known in PRESETS)
            )
        return name, preset
    return word, ""


def _add_variations(variants: Mapping[str, Config], vary: Sequence[str]) -> dict[str, Config]:
    """Each variant followed by its variations; a variation that does not change the run is omitted."""
    varied = {}
    for label, config in variants.items():
        varied[label], unchanged = config, run_key(config)
        for entry in vary:
            for point in _grid_points(entry.split(), "--vary"):
                changed = apply_overrides(config, point)
                if run_key(changed) != unchanged:
                    varied[f"{label}, {', '.join(point)}"] = changed
    return varied


def _configure_ablation(config: Config, label: str) -> Config:
    switches = {key: value for key, value in ABLATION[label].items() if value is not None}
    return _with_section(_configure(config, "MrTF:paper"), "mrtf_args", switches)


def _with_section(config: Config, section: str, values: Mapping[str, Any]) -> Config:
    changed = {name: dict(content) for name, content in config.items()}
    changed.setdefault(section, {}).update(values)
    return changed


def _grid_points(grid: Sequence[str], option: str = "--grid") -> list[tuple[str, ...]]:
    """Every combination of the values of the keys.

    >>> _grid_points(["learning_rate=0.1,0.01", "epochs=1"])
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


def input_stamps(settings: RunSettings, algorithm: Algorithm) -> dict[str, Any]:
    """A stamp of everything that a run reads in addition to its configuration.

    The user's data files are identified by name, size and time; code by its contents. The files of public datasets in
    `data_cache_dir` are identified by their names.
    """
    data = settings.data
    codes = (
        (data.loader, "data_args.loader"),
        (settings.model.model, "model_args.model"),
        *((name, "common_args.callbacks") for name in settings.common.callbacks),
    )
    stamps: dict[str, Any] = fingerprint_files(data)
    stamps |= {name: _import_and_stamp(name, key) for name, key in codes if name and _is_user_code(name)}
    for owner in (algorithm, getattr(algorithm, "base", None)):
        module = type(owner).__module__
        if owner is not None and not module.startswith(__package__.partition(".")[0] + "."):
            stamps[module] = _stamp_module(module)
    for section in algorithm.sections().values():
        # Components of the user's own, which the algorithm has imported.
        names = [name for value in section.values() for name in (value if isinstance(value, list | tuple) else [value])]
        modules = [name.partition(":")[0] for name in names if isinstance(name, str) and _is_user_code(name)]
        stamps |= {module: _stamp_module(module) for module in modules if module in sys.modules}
    return stamps


def _is_user_code(name: str) -> bool:
    """Whether the name is `package.module:Name`, and not `torchvision:resnet18` or `fedml:cnn`."""
    module, colon, _ = name.partition(":")
    return bool(colon) and module not in ("torchvision", "fedml", "mrtf")


def _import_and_stamp(name: str, key: str) -> str:
    import_object(name, key)
    return _stamp_module(name.partition(":")[0])


def _stamp_module(module: str) -> str:
    """A hash of a module's source and of the imported modules in its package or folder."""
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(module) if module not in sys.modules else sys.modules[module].__spec__
    origin = spec.origin if spec is not None else getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        return module
    home = Path(origin).resolve().parent
    digest = hashlib.sha256()
    for name, loaded in sorted(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if not file:
            continue
        path = Path(file).resolve()
        # Installed packages are not part of the user's code.
        in_same_folder = path.parent == home and "site-packages" not in path.parts
        if name.partition(".")[0] == top or in_same_folder:
            digest.update(f"{name}\0".encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()[:16]
