"""The setups of docs/lab/evidence.md are valid: running all of them takes hours."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.evidence.setups import OURS, SETUPS
from mrtf_fedml.commands.configuration import load_configuration
from mrtf_fedml.config import RunSettings
from mrtf_fedml.experiments.plan import plan_trials

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SETUPS)
def test_evidence_setups_have_known_keys_and_algorithms(name: str) -> None:
    setup = SETUPS[name]
    config = load_configuration(str(ROOT / "fedml_configs" / f"{setup.config}.yaml"), list(setup.changes))
    for trial in plan_trials(config, ["FedAvg", OURS], 1):
        RunSettings.from_config(trial.config)


def test_evidence_setups_are_distinct() -> None:
    requests = [(setup.config, *sorted(setup.changes)) for setup in SETUPS.values()]
    assert len(set(requests)) == len(SETUPS)
    assert len({setup.title for setup in SETUPS.values()}) == len(SETUPS)


def test_final_labels_tables_count_covered_intervals_and_mark_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks" / "evidence"), *sys.path])
    script = importlib.import_module("final_labels")
    ours = [
        {"setup": "ring", "seed": 0, "algorithm": "MrTF:tuned", "accuracy": [0.4, 0.8], "final": 0.8, "stated": 0.7,
         "interval": [0.6, 0.9], "calibration_error": 0.02, "by_chance": 0.02, "covered": 0.9, "set_size": 1.0},
        {"setup": "ring", "seed": 1, "algorithm": "MrTF:tuned", "accuracy": [0.4, 0.6], "final": 0.6, "stated": 0.8,
         "interval": [0.7, 0.9], "calibration_error": 0.06, "by_chance": 0.02, "covered": 0.8, "set_size": 1.5},
        {"setup": "ring", "seed": 2, "algorithm": "MrTF:tuned", "accuracy": [0.4, 0.7], "final": 0.7, "stated": None},
    ]  # fmt: skip
    theirs = {"setup": "ring", "seed": 0, "algorithm": "FedAvg", "accuracy": [0.2, 0.5]}
    final = script.final_table([*ours, theirs]).splitlines()[-1]
    assert "| 0.550 / 0.550 / **0.700** ± 0.100 | 0.350 / 0.350 / 0.500 |" in final
    better = [{"setup": "ring", "seed": seed, "algorithm": "Scaffold", "accuracy": [0.1, 0.9]} for seed in range(3)]
    lost = script.losses([*ours, theirs, *better]).splitlines()
    assert lost == ["- ring, 2 classes, 6 of 30, final: Scaffold -0.200, beyond noise"]
    statements = script.statements_table([*ours, theirs]).splitlines()[-1]
    assert statements.startswith(
        "| **all** | 3 | 2 | 1 of 2 | 0.150 | 0.200 | 0.250 | 0.040 | 0.020 | 0.060 | 0.850 | 0.800 |"
    )


def test_calibration_limit_falls_with_the_held_out_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks" / "evidence"), *sys.path])
    script = importlib.import_module("calibration_limit")
    monkeypatch.setattr(script, "DRAWS", 10)
    rng = np.random.default_rng(3)
    confidences, labels = torch.from_numpy(rng.uniform(0.4, 0.99, 2000)), rng.integers(0, 3, 2000)
    correct = rng.random(2000) < confidences.numpy()
    few, many = (np.mean(list(script.errors_of(confidences, labels, correct, n, classes=3))) for n in (20, 2000))
    assert many < 0.03 < 0.05 < few
