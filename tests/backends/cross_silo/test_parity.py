"""Predictions and model are byte-equal to those of one process on every backend, and every party ends normally."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.algorithms.sampling import select_clients
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.conftest import bucket_client
from tests.backends.cross_silo.federation import PATIENCE, Federation
from tests.conftest import STALLED, output_bytes, write_yaml

SILOS = 3
ROUNDS: dict[str, Any] = {"comm_round": 3}
#: Full participation uses the paper's preset; partial participation uses one with client validation,
#: and some labels of the server's samples.
PARTICIPATION: dict[str, dict[str, Any]] = {
    "all": {},
    "two of three": {
        "client_num_per_round": 2,
        "preset": "tuned",
        "labels_file": str(Path(__file__).parents[1] / "few_labels.csv"),
    },
}


def estimates(run_dir: Path) -> list[float | None]:
    """The accuracy estimated by the clients, one value per round."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line).get("estimated_accuracy") for line in lines]


def evaluations(run_dir: Path) -> bytes | None:
    """What the clients reported about the model that predicts; None where they do not validate."""
    file = run_dir / "validation.json"
    return file.read_bytes() if file.exists() else None


def assert_same(federation: Federation, reference: Path) -> None:
    codes = [party.wait() for party in federation.start_all()]
    assert codes == [0] * (SILOS + 1), "\n".join(party.output for party in federation.parties)
    assert output_bytes(federation.run_dir) == output_bytes(reference)
    assert estimates(federation.run_dir) == estimates(reference)
    assert evaluations(federation.run_dir) == evaluations(reference)


@pytest.mark.slow
def keys_of(federation: Federation, endpoint: str) -> list[str]:
    """The objects of this run in the bucket, which other tests use too."""
    listed = bucket_client(endpoint).list_objects_v2(Bucket="federation").get("Contents", [])
    return [entry["Key"] for entry in listed if federation.config["common_args"]["run_id"] in entry["Key"]]


@pytest.mark.parametrize("who", PARTICIPATION)
@pytest.mark.parametrize("backend", ["GRPC", "TRPC"])
def test_mrtf_across_silos_gives_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path], backend: str, who: str
) -> None:
    changes = ROUNDS | PARTICIPATION[who]
    with Federation(tmp_path, SILOS, backend, **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))


@pytest.mark.parametrize("who", [pytest.param("all", marks=pytest.mark.slow), "two of three"])
def test_mqtt_s3_gives_equal_predictions_and_leaves_bucket_empty(
    tmp_path: Path, one_process: Callable[..., Path], mqtt_s3: dict[str, Any], who: str
) -> None:
    changes = ROUNDS | PARTICIPATION[who]
    with Federation(tmp_path, SILOS, "MQTT_S3", **changes) as federation:
        federation.comm |= mqtt_s3
        federation.config["common_args"]["run_id"] = f"parity {who}".replace(" ", "-")
        assert_same(federation, one_process(SILOS, **changes))
    endpoint = mqtt_s3["customized_training_s3_config"]["CN_S3_ENDPOINT"]
    assert keys_of(federation, endpoint) == []
    assert "secret" not in (federation.run_dir / "config.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "algorithm", "more"),
    [
        ("GRPC", "FedAvg", {"aggregation": "samples"}),
        ("GRPC", "FedProx", {"fedprox_mu": 0.5}),
        ("TRPC", "FedMMD", {"model": "mlp"}),
        ("GRPC", "FedOpt", {"server_optimizer": "yogi"}),
        ("TRPC", "FedDF", {}),
        ("GRPC", "FedRidge", {"model": "linear"}),
        ("GRPC", "MrTF", STALLED),
        ("GRPC", "MrTF", {"models": {"small": "linear", "large": "lenet"}, "preset": "tuned", "broadcast": "refined"}),
    ],
)
def test_other_algorithms_across_silos_give_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path], backend: str, algorithm: str, more: dict[str, Any]
) -> None:
    changes = {"comm_round": 2, "federated_optimizer": algorithm, **more}
    with Federation(tmp_path, SILOS, backend, **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))
    summary = json.loads((federation.run_dir / "summary.json").read_text())
    assert (summary["rounds"] < summary["rounds_requested"]) == ("early_stopping" in more)


@pytest.mark.slow
def test_unknown_classes_are_found_across_silos_as_in_one_process(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    # Three silos with two classes each leave four of the server's ten without a client.
    changes = {"comm_round": 2, "preset": "tuned", "model": "mlp", "classes_per_client": 2}
    with Federation(tmp_path, SILOS, "GRPC", **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))
    summary = json.loads((federation.run_dir / "summary.json").read_text())
    rows = (federation.run_dir / "predictions.csv").read_text().splitlines()
    assert sum(row.endswith(",unknown") for row in rows) == summary["samples_unknown"] > 100
    assert "look like no class" in summary["no_estimate_because"]


@pytest.mark.slow
def test_columns_of_a_wide_table_are_counted_across_silos_as_in_one_process(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    """150 columns, of which the last is the label at the silos and noise on the server."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    x = 0.5 * rng.normal(size=(3, 150))[y] + rng.normal(size=(900, 150))
    x[:, -1] = np.concatenate([y[:500], rng.permutation(y[500:])])
    arrays = {"x_train": x[:500].astype(np.float32), "y_train": y[:500], "x_test": x[500:].astype(np.float32)}
    np.savez(tmp_path / "table.npz", **arrays, y_test=y[500:])
    table = {"dataset": "npz", "data_file": str(tmp_path / "table.npz")}
    changes = {"comm_round": 2, "preset": "tuned", "model": "mlp", "classes_per_client": 2, **table}
    with Federation(tmp_path, SILOS, "GRPC", **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))
    counts = json.loads((federation.run_dir / "validation.json").read_text())["clients"]
    assert counts["0"]["features"]["shape"] == [150, 3, 4]
    summary = json.loads((federation.run_dir / "summary.json").read_text())
    assert "a feature determines the class" in summary["no_estimate_because"]


@pytest.mark.slow
def test_silos_that_name_their_own_models_give_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    names = ["large", "small", "large"]
    changes = {"comm_round": 2, "models": {"small": "linear", "large": "lenet"}}
    with Federation(tmp_path, SILOS, "GRPC", **changes) as federation:
        parties = [federation.start(0)]
        for rank, name in enumerate(names, start=1):
            model_args = {**federation.config["model_args"], "client_models": name}
            parties.append(federation.start(rank, config={**federation.config, "model_args": model_args}))
        codes = [party.wait() for party in parties]
    assert codes == [0] * (SILOS + 1), "\n".join(party.output for party in federation.parties)
    assert output_bytes(federation.run_dir) == output_bytes(one_process(SILOS, **changes, client_models=names))


@pytest.mark.slow
def test_silos_that_prefer_one_model_to_the_mean_give_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    models = {"rigid": "tests.models.rigid:Rigid", "small": "linear", "large": "lenet"}
    changes = {"comm_round": 4, "models": models, "preset": "tuned", "broadcast": "refined"}
    with Federation(tmp_path, SILOS, "GRPC", **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))
    assert '"predicting_model": 2.0' in (federation.run_dir / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_noise_across_silos_is_not_drawn_from_the_seed(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    """The server knows the run's seed and could subtract noise that is drawn from it."""
    changes = {"comm_round": 2, "clip": 1.0, "sigma": 0.01}
    with Federation(tmp_path, SILOS, "GRPC", **changes) as federation:
        codes = [party.wait() for party in federation.start_all()]
    assert codes == [0] * (SILOS + 1), "\n".join(party.output for party in federation.parties)
    simulated = one_process(SILOS, **changes)
    assert output_bytes(federation.run_dir)[1] != output_bytes(simulated)[1]
    summaries = [json.loads((run_dir / "summary.json").read_text()) for run_dir in (federation.run_dir, simulated)]
    assert summaries[0]["epsilon_server"] == summaries[1]["epsilon_server"] > 0, "the budget is that of one process"
    lines = [json.loads(line) for line in (federation.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["train_loss"] for line in lines] == [None, None], "a loss without noise stays at home"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["GRPC", "TRPC", "MQTT_S3"])
def test_scaffold_across_silos_gives_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path], mqtt_s3: dict[str, Any], backend: str
) -> None:
    changes = ROUNDS | PARTICIPATION["two of three"] | {"federated_optimizer": "Scaffold"}
    with Federation(tmp_path, SILOS, backend, **changes) as federation:
        if backend == "MQTT_S3":
            federation.comm |= mqtt_s3
            federation.config["common_args"]["run_id"] = "scaffold"
        assert_same(federation, one_process(SILOS, **changes))
    if backend == "MQTT_S3":
        endpoint = mqtt_s3["customized_training_s3_config"]["CN_S3_ENDPOINT"]
        assert keys_of(federation, endpoint) == []


def test_grpc_with_certificates_gives_equal_predictions(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    authority = Authority(tmp_path / "certificates")
    with Federation(tmp_path, 2, comm_round=1) as federation:
        federation.use_certificates(authority)
        federation.start_all()
        assert [party.wait() for party in federation.parties] == [0, 0, 0], federation.parties[0].output
        assert output_bytes(federation.run_dir) == output_bytes(one_process(2, comm_round=1))


def over_mpi(folder: Path, changes: dict[str, Any]) -> Federation:
    federation = Federation(folder, SILOS, "MPI", **changes)
    file = write_yaml(folder / "mpi.yaml", federation.config)
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun) if mpirun.exists() else "mpirun", "--allow-run-as-root", "--oversubscribe"]
    command += ["-n", str(SILOS + 1), sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the run is over") == SILOS
    return federation


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["MrTF", "Scaffold"])
def test_mpi_silos_give_equal_predictions(tmp_path: Path, one_process: Callable[..., Path], algorithm: str) -> None:
    changes = ROUNDS | PARTICIPATION["two of three"] | {"federated_optimizer": algorithm}
    assert output_bytes(over_mpi(tmp_path, changes).run_dir) == output_bytes(one_process(SILOS, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["GRPC", "TRPC", "MPI", "MQTT_S3"])
def test_repeated_runs_give_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path], mqtt_s3: dict[str, Any], backend: str
) -> None:
    for turn in range(3):
        folder = tmp_path / f"turn-{turn}"
        folder.mkdir()
        if backend == "MPI":
            assert output_bytes(over_mpi(folder, ROUNDS).run_dir) == output_bytes(one_process(SILOS, **ROUNDS)), (
                f"turn {turn}"
            )
            continue
        with Federation(folder, SILOS, backend, **ROUNDS) as federation:
            federation.comm |= mqtt_s3
            federation.config["common_args"]["run_id"] = f"turn-{turn}"
            assert_same(federation, one_process(SILOS, **ROUNDS))


def test_partial_participation_has_client_estimates(one_process: Callable[..., Path]) -> None:
    """Otherwise the parity tests would not cover client validation."""
    accuracies = estimates(one_process(SILOS, **ROUNDS, **PARTICIPATION["two of three"]))
    assert accuracies[0] is None
    assert None not in accuracies[1:]


def test_partial_participation_selects_different_clients() -> None:
    """Otherwise the parity tests would not cover client sampling."""
    chosen = {tuple(select_clients(index, SILOS, 2, seed=3)) for index in range(ROUNDS["comm_round"])}
    assert len(chosen) > 1
