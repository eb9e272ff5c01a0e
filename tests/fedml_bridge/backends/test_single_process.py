"""Whole runs in one process, on real digits, through `mrtf run` and FedMLRunner."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml
from safetensors.torch import load_file
from sklearn.datasets import load_breast_cancer

from mrtf_fedml.algorithms.sampling import select_clients
from mrtf_fedml.training.outputs import PREDICTION_COLUMNS
from mrtf_fedml.training.run_directory import RunDirectory
from tests.conftest import output_bytes, read_metrics
from tests.fedml_bridge.small_run import digits_file, run


def test_finished_run_has_all_files_of_the_run_directory(finished_run: Path) -> None:
    names = {path.name for path in finished_run.iterdir()}
    assert names == {
        "config.yaml",
        "metrics.jsonl",
        "predictions.csv",
        "probabilities.npy",
        "model.safetensors",
        "model_card.md",
        "summary.json",
        "report.html",
        "split.json",
        "agreement.npy",
        "calibration.json",
        "evaluation.json",
        "status.json",
        "reference.safetensors",
        "state",
    }


def test_metrics_have_one_line_per_round(finished_run: Path) -> None:
    lines = read_metrics(finished_run)
    assert [line["round"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert line["clients"] == select_clients(line["round"], total=8, per_round=3, seed=3)
        assert line["acc"] == line["acc_refined"]
        for key in ("acc_aggregated", "acc_ensemble", "acc_targets"):
            assert 0.0 <= line[key] <= 1.0
        assert 0.25 <= line["local_weight"] <= 1.0
        assert line["uplink_bytes"] > line["downlink_bytes"] > 0, "the loss goes up with the weights"


def test_predictions_equal_softmax_of_the_final_model(finished_run: Path) -> None:
    probabilities = np.load(finished_run / "probabilities.npy")
    rows = [row.split(",") for row in (finished_run / "predictions.csv").read_text().splitlines()]
    assert tuple(rows[0]) == PREDICTION_COLUMNS
    assert probabilities.shape == (len(rows) - 1, 10) == (599, 10)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-5)
    assert [int(row[2]) for row in rows[1:]] == probabilities.argmax(1).tolist()
    assert rows[1][4] == f"{probabilities[0].max():.6f}"
    summary = json.loads((finished_run / "summary.json").read_text())
    assert summary["accuracy"] == read_metrics(finished_run)[-1]["acc"]
    assert set(summary["recall"]) == {str(digit) for digit in range(10)}


def test_config_yaml_has_the_resolved_settings(finished_run: Path) -> None:
    config = yaml.safe_load((finished_run / "config.yaml").read_text())
    assert config["mrtf_args"]["temperature"] == 4.0
    assert config["train_args"]["momentum"] == 0.9
    assert config["device_args"]["threads"] == 1


def test_same_seed_gives_equal_bytes_and_other_seed_does_not(tmp_path: Path, finished_run: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert output_bytes(run(tmp_path / "a", comm_round=3)) == output_bytes(finished_run)
    assert output_bytes(run(tmp_path / "b", comm_round=3, random_seed=4)) != output_bytes(finished_run)


def test_permuted_true_labels_change_no_weight_and_no_prediction(tmp_path: Path) -> None:
    outputs, scores = [], []
    for name, permuted, labels in (("true", False, True), ("permuted", True, True), ("none", False, False)):
        folder = tmp_path / name
        folder.mkdir()
        file = digits_file(folder / "digits.npz", permuted, labels)
        learnt = {"model": "mlp", "hidden_size": 32, "epochs": 6, "learning_rate": 0.1}
        run_dir = run(folder, dataset="npz", data_file=str(file), preset="tuned", comm_round=3, **learnt)
        outputs.append((*output_bytes(run_dir), (run_dir / "state" / "server.safetensors").read_bytes()))
        scores.append(read_metrics(run_dir)[-1]["acc"])
    assert outputs[0] == outputs[1] == outputs[2]
    assert scores[0] != scores[1], "the scores, and only they, follow the labels"
    assert scores[2] is None
    assert json.loads((tmp_path / "none" / "run" / "summary.json").read_text())["accuracy"] is None


def test_algorithms_with_one_seed_share_clients_and_initial_weights(tmp_path: Path, finished_run: Path) -> None:
    lines = {}
    for name in ("FedAvg", "FedDF"):
        (tmp_path / name).mkdir()
        lines[name] = read_metrics(run(tmp_path / name, federated_optimizer=name, comm_round=3))
    ours = read_metrics(finished_run)
    for round_index in range(3):
        assert lines["FedAvg"][round_index]["clients"] == ours[round_index]["clients"]
    assert lines["FedAvg"][0]["train_loss"] == lines["FedDF"][0]["train_loss"] == ours[0]["train_loss"]
    assert lines["FedAvg"][0]["acc"] == ours[0]["acc_aggregated"]
    assert "acc_refined" not in lines["FedAvg"][0]


def test_frequency_of_the_test_changes_only_the_scores(tmp_path: Path, finished_run: Path) -> None:
    run_dir = run(tmp_path, comm_round=3, frequency_of_the_test=5)
    assert output_bytes(run_dir) == output_bytes(finished_run)
    assert [line["acc"] is None for line in read_metrics(run_dir)] == [False, True, False]


def test_model_file_has_weights_and_usage_metadata_only(finished_run: Path) -> None:
    content = (finished_run / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    (metadata,) = header.pop("__metadata__").values()
    facts = json.loads(metadata)
    assert set(header) == set(load_file(finished_run / "model.safetensors"))
    assert set(facts) == {"class_names", "input_shape", "model", "preprocessing", "version"}, "no time, path or score"
    assert facts["class_names"] == [str(digit) for digit in range(10)]
    assert (facts["input_shape"], facts["model"]["model"]) == ([1, 8, 8], "lenet")
    nothing = dict.fromkeys(("mean", "deviation", "features", "columns", "encoder"))
    assert facts["preprocessing"] == {"kind": "pixels", **nothing}


def test_raw_table_is_labelled_better_than_by_the_majority_class(tmp_path: Path) -> None:
    cancer = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(cancer.target))
    x, y = cancer.data[order], cancer.target[order]
    np.savez(tmp_path / "cancer.npz", x_train=x[150:], y_train=y[150:], x_test=x[:150], y_test=y[:150])
    # The commonest class would be right for some 6 of 10.
    keys = {"dataset": "npz", "data_file": str(tmp_path / "cancer.npz"), "model": "mlp", "hidden_size": 32}
    run_dir = run(tmp_path, **keys, partition_method="dirichlet", comm_round=8, epochs=8, learning_rate=0.03)
    assert json.loads((run_dir / "summary.json").read_text())["accuracy"] > 0.85
    preprocessing = RunDirectory(run_dir).read_model()[1]["preprocessing"]
    np.testing.assert_allclose(preprocessing["mean"], x[150:].mean(axis=0), rtol=1e-5)
