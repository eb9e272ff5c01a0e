"""The metrics of a round: standard keys, accuracies by name, and an algorithm's own metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError
from mrtf_fedml.training.evaluation import STANDARD_KEYS, check_metrics
from tests.conftest import read_metrics, small_config, write_yaml


def test_check_metrics_converts_tensors_and_replaces_infinite_values(caplog: pytest.LogCaptureFixture) -> None:
    checked = check_metrics({"a": torch.tensor(0.5), "b": 3, "c": None, "d": float("inf")})
    assert checked == {"a": 0.5, "b": 3, "c": None, "d": None}
    assert "the metric d is inf" in caplog.text


@pytest.mark.parametrize("metric", [{"round": 1.0}, {"acc": 0.5}, {"mood": "good"}])
def test_check_metrics_refuses_standard_keys_and_other_values(metric: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(metric))):
        check_metrics(metric)


def test_round_metrics_have_the_accuracies_that_the_algorithm_reports(tmp_path: Path) -> None:
    config = small_config(run_dir=str(tmp_path / "run"), federated_optimizer="FedAvg", comm_round=1)
    assert main(["run", "--cf", str(write_yaml(tmp_path / "config.yaml", config))]) == 0
    (fedavg,) = read_metrics(tmp_path / "run")
    assert {key for key in fedavg if key.startswith("acc_")} == {"acc_aggregated"}
    assert fedavg["acc"] == fedavg["acc_aggregated"]
    optional = {"retries", "outlier_clients", "suspect_clients"}
    assert set(STANDARD_KEYS) - optional <= set(fedavg)
