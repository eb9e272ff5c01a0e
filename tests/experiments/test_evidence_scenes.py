"""The scenes of docs/evidence.md: each must be one that the command takes, since all of them take hours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.commands.configuration import configured
from mrtf_fedml.experiments.plan import planned
from mrtf_fedml.settings import RunSettings

ROOT = Path(__file__).parents[2]


def _scenes() -> dict[str, Any]:
    name = "evidence_scenes"
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their own module.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return dict(module.SCENES)


SCENES = _scenes()


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_has_keys_and_algorithms_that_there_are(name: str) -> None:
    scene = SCENES[name]
    config = configured(str(ROOT / "fedml_configs" / f"{scene.config}.yaml"), list(scene.changes))
    for algorithms, seeds in scene.parts.values():
        runs = planned(config, algorithms.split(","), seeds)
        assert len(runs) == seeds * len(algorithms.split(","))
        for trial in runs:
            RunSettings.from_config(trial.config)


def test_no_two_scenes_are_the_same() -> None:
    asked = [(scene.config, *sorted(scene.changes)) for scene in SCENES.values()]
    assert len(set(asked)) == len(SCENES)
    assert len({scene.title for scene in SCENES.values()}) == len(SCENES)
