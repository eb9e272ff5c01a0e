"""Guarantees: labels are sealed, client data stay with the client, and secrets are not stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from mrtf_fedml.algorithms import algorithm_names
from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load
from tests.backends.cross_silo.federation import Federation
from tests.backends.mpi.conftest import launched
from tests.conftest import output_bytes, small_config, write_yaml

CLIENTS = {"client_num_in_total": 2, "client_num_per_round": 2, "classes_per_client": 3}


def user_data(folder: Path, name: str, shift: int) -> dict[str, Any]:
    """Settings of a small table of user data; `shift` changes the true labels of the server's samples."""
    generator = np.random.default_rng(0)
    labels = np.arange(90) % 4
    centres = generator.normal(scale=2.0, size=(4, 6))
    inputs = (centres[labels] + generator.normal(size=(90, 6))).astype(np.float32)
    file = folder / f"{name}.npz"
    server_labels = (labels[60:] + shift) % 4
    np.savez(file, x_train=inputs[:60], y_train=labels[:60], x_test=inputs[60:], y_test=server_labels)
    return {"dataset": "npz", "data_file": str(file), "model": "mlp", "hidden_size": 16, **CLIENTS}


def run(folder: Path, name: str, **changes: Any) -> Path:
    run_dir = folder / name
    config = small_config(run_dir=str(run_dir), **changes)
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return run_dir


def outputs_and_state(run_dir: Path) -> tuple[bytes, ...]:
    return (*output_bytes(run_dir), (run_dir / "state" / "server.safetensors").read_bytes())


def test_server_labels_change_no_output_of_any_algorithm(tmp_path: Path) -> None:
    names = algorithm_names()
    assert {"MrTF", "FedDF", "FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold"} <= set(names)
    changed_accuracies = 0
    for algorithm in names:
        results = []
        for shift in (0, 1):
            name = f"{algorithm}-{shift}"
            run_dir = run(
                tmp_path, name, federated_optimizer=algorithm, comm_round=2, **user_data(tmp_path, name, shift)
            )
            results.append((outputs_and_state(run_dir), json.loads((run_dir / "summary.json").read_text())["accuracy"]))
        assert results[0][0] == results[1][0], algorithm
        changed_accuracies += results[0][1] != results[1][1]
    # An algorithm that predicts one class for all samples may have equal accuracy by chance.
    assert changed_accuracies > len(names) / 2, "the accuracy, and nothing else, depends on the labels"


@pytest.mark.slow
def test_server_labels_change_no_output_across_silos(tmp_path: Path) -> None:
    outputs = []
    for shift in (0, 1):
        folder = tmp_path / str(shift)
        folder.mkdir()
        with Federation(folder, 2, comm_round=2, **user_data(folder, "silos", shift)) as federation:
            parties = federation.start_all()
            assert [party.wait() for party in parties] == [0, 0, 0], parties[0].output
            outputs.append(outputs_and_state(federation.run_dir))
    assert outputs[0] == outputs[1]


@pytest.mark.slow
def test_server_labels_change_no_output_over_mpi(tmp_path: Path) -> None:
    alone = run(tmp_path, "alone", comm_round=2, **user_data(tmp_path, "alone", 0))
    config = small_config(
        run_dir=str(tmp_path / "ranks"), backend="MPI", comm_round=2, **user_data(tmp_path, "ranks", 1)
    )
    ended = launched(2, write_yaml(tmp_path / "ranks.yaml", config))
    assert ended.returncode == 0, ended.stderr
    assert outputs_and_state(tmp_path / "ranks") == outputs_and_state(alone)


def test_run_directory_and_log_contain_no_client_sample(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Searches all files of the run, as numbers of any width and as text."""
    config = small_config(run_dir=str(tmp_path / "run"), keep_features=True, **user_data(tmp_path, "own", 0))
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config)), "--verbose"]) == 0
    output = capfd.readouterr()
    searched = [output.out.encode(), output.err.encode()]
    searched += [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert len(searched) > 10
    dataset = load(RunSettings.from_config(config))
    raw = np.load(tmp_path / "own.npz")
    clients = np.concatenate([dataset[5][0].inputs.numpy(), raw["x_train"]])
    written = b"\n".join(searched)
    for sample in clients:
        for kind in (np.float16, np.float32, np.float64):
            assert sample.astype(kind).tobytes() not in written
        for text in (f"{sample[0]:.5f}".rstrip("0"), repr(float(sample[0]))):
            assert f", {text}".encode() not in written
    # The search itself works: it finds the weights of the model.
    for weights in load_file(tmp_path / "run" / "model.safetensors").values():
        assert weights.numpy().tobytes() in written


SECRETS = {
    "customized_training_mqtt_config": {"BROKER_HOST": "h", "MQTT_USER": "me", "MQTT_PWD": "pwd-7f3a9c"},
    "customized_training_s3_config": {"BUCKET_NAME": "b", "CN_S3_AKI": "aki-7f3a9c", "CN_S3_SAK": "sak-7f3a9c"},
}


def test_run_and_compare_write_no_secret(tmp_path: Path) -> None:
    keys = user_data(tmp_path, "own", 0) | {"comm_round": 1, "keep_features": True}
    config = small_config(run_dir=str(tmp_path / "out" / "run"), **keys)
    config["comm_args"] |= SECRETS
    config["tracking_args"] = {"enable_wandb": False, "wandb_key": "wandb-7f3a9c"}
    file = write_yaml(tmp_path / "c.yaml", config)
    assert main(["run", "--cf", str(file), "--set", "tracking_args.api_token=token-7f3a9c"]) == 2, "no such key"
    assert main(["run", "--cf", str(file)]) == 0
    run_dir = str(tmp_path / "out" / "run")
    assert main(["run", "--resume", run_dir, "--set", "comm_round=2", "--set", "wandb_key=again-7f3a9c"]) == 0
    assert main(["report", run_dir]) == 0
    compare = ["compare", "--cf", str(file), "--algorithms", "FedAvg", "--seeds", "1", "--out", str(tmp_path / "out/c")]
    assert main([*compare, "--set", "wandb_key=third-7f3a9c"]) == 0
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [str(path) for path in files if b"7f3a9c" in path.read_bytes()] == []
