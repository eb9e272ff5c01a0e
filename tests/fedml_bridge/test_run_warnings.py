"""Warnings of whole runs: a raw table gives one in terminal, summary and report; good runs give none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from mrtf_fedml.cli import main
from tests.conftest import small_config, write_yaml

CONFIGS = Path(__file__).parents[2] / "fedml_configs"


def warnings_of(run_dir: Path) -> list[str]:
    warnings: list[str] = json.loads((run_dir / "summary.json").read_text())["warnings"]
    return warnings


def run(folder: Path, **changes: Any) -> Path:
    run_dir = folder / "run"
    file = write_yaml(folder / "config.yaml", small_config(run_dir=str(run_dir), **changes))
    assert main(["run", "--cf", str(file)]) == 0
    return run_dir


@pytest.mark.slow
def test_raw_table_without_labels_warns(tmp_path: Path) -> None:
    cancer = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(cancer.target))
    x, y = cancer.data[order], cancer.target[order]
    np.savez(tmp_path / "cancer.npz", x_train=x[150:], y_train=y[150:], x_test=x[:150])
    keys = {"dataset": "npz", "data_file": str(tmp_path / "cancer.npz"), "model": "mlp", "partition_method": "iid"}
    run_dir = tmp_path / "run"
    config = small_config(**keys, run_dir=str(run_dir), standardize=False, federated_optimizer="FedAvg")
    command = [sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]
    # A process of its own, as a user has it: what other tests have done to logging is none of its business.
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    (warning,) = [sentence for sentence in warnings_of(run_dir) if "training loss reached" in sentence]
    assert warning in ended.stderr
    assert "training loss reached" in (run_dir / "report.html").read_text()


def test_easy_run_gives_no_warning(tmp_path: Path) -> None:
    learnt = {"model": "mlp", "hidden_size": 64, "epochs": 5, "learning_rate": 0.1}
    assert warnings_of(run(tmp_path, partition_method="iid", comm_round=3, **learnt)) == []


def test_quickstart_gives_no_warning(tmp_path: Path) -> None:
    # It gets better from round to round: what is quiet after twelve is quiet after twenty.
    words = ["--set", "comm_round=12", "--set", "threads=1", "--set", f"run_dir={tmp_path / 'run'}"]
    assert main(["run", "--cf", str(CONFIGS / "quickstart.yaml"), *words]) == 0
    assert warnings_of(tmp_path / "run") == []
