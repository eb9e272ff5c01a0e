"""Whole runs in one process, on real digits, through `mrtf run` and FedMLRunner."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml
from safetensors.torch import load_file
from sklearn.datasets import load_breast_cancer

from mrtf_fedml.algorithms.sampling import chosen_clients
from mrtf_fedml.rounds.store import RunStore
from tests.conftest import answer, metrics
from tests.fedml_bridge.small_run import digits_file, run


def test_a_run_leaves_all_that_the_design_names(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
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
        "examination.json",
        "state",
    }


def test_every_round_has_its_line(finished: Path) -> None:
    lines = metrics(finished)
    assert [line["round"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert line["clients"] == chosen_clients(line["round"], total=8, per_round=3, seed=3)
        assert line["acc"] == line["acc_refined"]
        for key in ("acc_aggregated", "acc_ensemble", "acc_targets"):
            assert 0.0 <= line[key] <= 1.0
        assert 0.25 <= line["local_weight"] <= 1.0
        assert line["bytes_up"] > line["bytes_down"] > 0, "the loss goes up with the weights"


def test_predictions_are_the_final_models_plain_softmax(finished: Path) -> None:
    probabilities = np.load(finished / "probabilities.npy")
    rows = [row.split(",") for row in (finished / "predictions.csv").read_text().splitlines()]
    assert rows[0] == ["index", "id", "label", "class_name", "confidence"]
    assert probabilities.shape == (len(rows) - 1, 10) == (599, 10)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-5)
    assert [int(row[2]) for row in rows[1:]] == probabilities.argmax(1).tolist()
    assert rows[1][4] == f"{probabilities[0].max():.6f}"
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["accuracy"] == metrics(finished)[-1]["acc"]
    assert set(summary["recall"]) == {str(digit) for digit in range(10)}


def test_the_resolved_configuration_is_kept(finished: Path) -> None:
    config = yaml.safe_load((finished / "config.yaml").read_text())
    assert config["mrtf_args"]["temperature"] == 4.0
    assert config["train_args"]["momentum"] == 0.9
    assert config["device_args"]["threads"] == 1


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert answer(run(tmp_path / "a", comm_round=3)) == answer(finished)
    assert answer(run(tmp_path / "b", comm_round=3, random_seed=4)) != answer(finished)


def test_permuting_the_true_labels_changes_no_weight_and_no_prediction(tmp_path: Path) -> None:
    answers, scores = [], []
    for name, permuted, labels in (("true", False, True), ("permuted", True, True), ("none", False, False)):
        folder = tmp_path / name
        folder.mkdir()
        file = digits_file(folder / "digits.npz", permuted, labels)
        learnt = {"model": "mlp", "hidden_size": 32, "epochs": 6, "learning_rate": 0.1}
        run_dir = run(folder, dataset="npz", data_file=str(file), preset="tuned", comm_round=3, **learnt)
        answers.append((*answer(run_dir), (run_dir / "state" / "server.safetensors").read_bytes()))
        scores.append(metrics(run_dir)[-1]["acc"])
    assert answers[0] == answers[1] == answers[2]
    assert scores[0] != scores[1], "the scores, and only they, follow the labels"
    assert scores[2] is None
    assert json.loads((tmp_path / "none" / "run" / "summary.json").read_text())["accuracy"] is None


def test_the_algorithms_share_clients_and_starting_weights(tmp_path: Path, finished: Path) -> None:
    lines = {}
    for name in ("FedAvg", "FedDF"):
        (tmp_path / name).mkdir()
        lines[name] = metrics(run(tmp_path / name, federated_optimizer=name, comm_round=3))
    ours = metrics(finished)
    for round_index in range(3):
        assert lines["FedAvg"][round_index]["clients"] == ours[round_index]["clients"]
    assert lines["FedAvg"][0]["local_loss"] == lines["FedDF"][0]["local_loss"] == ours[0]["local_loss"]
    assert lines["FedAvg"][0]["acc"] == ours[0]["acc_aggregated"]
    assert lines["FedAvg"][0]["acc_refined"] is None


def test_scoring_less_often_changes_nothing_but_the_scores(tmp_path: Path, finished: Path) -> None:
    run_dir = run(tmp_path, comm_round=3, frequency_of_the_test=5)
    assert answer(run_dir) == answer(finished)
    assert [line["acc"] is None for line in metrics(run_dir)] == [False, True, False]


def test_the_model_file_holds_weights_and_how_to_use_them_and_nothing_of_the_run(finished: Path) -> None:
    content = (finished / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    (told,) = header.pop("__metadata__").values()
    facts = json.loads(told)
    assert set(header) == set(load_file(finished / "model.safetensors"))
    assert set(facts) == {"class_names", "input_shape", "model", "preprocessing", "version"}, "no time, path or score"
    assert facts["class_names"] == [str(digit) for digit in range(10)]
    assert (facts["input_shape"], facts["model"]["model"]) == ([1, 8, 8], "lenet")
    nothing = dict.fromkeys(("mean", "deviation", "features", "columns"))
    assert facts["preprocessing"] == {"kind": "pixels", **nothing}


def test_a_raw_table_is_labelled_far_better_than_by_its_commonest_class(tmp_path: Path) -> None:
    cancer = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(cancer.target))
    x, y = cancer.data[order], cancer.target[order]
    np.savez(tmp_path / "cancer.npz", x_train=x[150:], y_train=y[150:], x_test=x[:150], y_test=y[:150])
    # The commonest class would be right for some 6 of 10.
    keys = {"dataset": "npz", "data_file": str(tmp_path / "cancer.npz"), "model": "mlp", "hidden_size": 32}
    run_dir = run(tmp_path, **keys, partition_method="dirichlet", comm_round=8, epochs=8, learning_rate=0.03)
    assert json.loads((run_dir / "summary.json").read_text())["accuracy"] > 0.85
    told = RunStore(run_dir).read_model()[1]["preprocessing"]
    np.testing.assert_allclose(told["mean"], x[150:].mean(axis=0), rtol=1e-5)
