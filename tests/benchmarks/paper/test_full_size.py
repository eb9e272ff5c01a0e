"""The paper's main figure at its own size: settings, results and figure; the runs take hours and are not made here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper.full_size import ALGORITHMS, PANELS, REFINERIES, configuration, draw, read_options, write_results
from mrtf_fedml.config import RunSettings


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "mnist.npz"
    x, y = np.zeros((400, 28, 28), np.uint8), np.arange(400) % 10
    np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    return file


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("curve", [*ALGORITHMS, *REFINERIES])
def test_configuration_of_each_curve_is_valid_and_of_the_papers_size(
    curve: str, panel: str, mnist: Path, tmp_path: Path
) -> None:
    settings = RunSettings.from_config(configuration(curve, mnist, panel, 0.05, tmp_path / "run"))
    train = settings.train
    assert (train.client_num_in_total, train.client_num_per_round, train.comm_round, train.epochs) == (100, 10, 200, 3)


def test_curves_may_follow_the_options() -> None:
    options = read_options(["mnist.npz", "runs", "--panel", "C=5", "FedAvg", "paper/aggregated"])
    assert (options.panel, options.curves, options.rate) == ("C=5", ["FedAvg", "paper/aggregated"], 0.05)
    assert read_options(["mnist.npz", "runs"]).curves == []


def test_results_have_the_accuracy_of_each_round_and_are_drawn(tmp_path: Path) -> None:
    for name in ("FedAvg", "paper_aggregated"):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"round": index, "acc": 0.1 * index}) for index in range(8)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines))
    write_results(tmp_path, "C=3", 0.05)
    results = json.loads((tmp_path / "mnist_C3_full_size.json").read_text())
    assert results["accuracy"]["paper/aggregated"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    draw(results, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
