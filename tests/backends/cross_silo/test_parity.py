"""The same answer as in one process, byte for byte, on every backend, and every party ends well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.algorithms.sampling import chosen_clients
from tests.backends.cross_silo.conftest import bucket_client
from tests.backends.cross_silo.federation import PATIENCE, Federation
from tests.conftest import write_yaml

SILOS = 3
ROUNDS: dict[str, Any] = {"comm_round": 3}
#: Where all take part the paper's words are run; where two do, the preset whose clients judge.
PARTICIPATION: dict[str, dict[str, Any]] = {"all": {}, "two of three": {"client_num_per_round": 2, "preset": "tuned"}}


def answer(run_dir: Path) -> tuple[bytes, bytes]:
    return (run_dir / "predictions.csv").read_bytes(), (run_dir / "model.safetensors").read_bytes()


def estimates(run_dir: Path) -> list[float | None]:
    """The accuracy that the clients estimate, round by round."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line).get("estimated_accuracy") for line in lines]


def assert_same(federation: Federation, reference: Path) -> None:
    codes = [party.ended() for party in federation.start_all()]
    assert codes == [0] * (SILOS + 1), "\n".join(party.told for party in federation.parties)
    assert answer(federation.run_dir) == answer(reference)
    assert estimates(federation.run_dir) == estimates(reference)


@pytest.mark.parametrize("who", PARTICIPATION)
@pytest.mark.parametrize("backend", ["GRPC", "TRPC"])
def test_the_answer_is_that_of_one_process(
    tmp_path: Path, one_process: Callable[..., Path], backend: str, who: str
) -> None:
    changes = ROUNDS | PARTICIPATION[who]
    with Federation(tmp_path, SILOS, backend, **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))


@pytest.mark.parametrize("who", PARTICIPATION)
def test_over_mqtt_and_s3_too_and_nothing_stays_in_the_bucket(
    tmp_path: Path, one_process: Callable[..., Path], mqtt_s3: dict[str, Any], who: str
) -> None:
    changes = ROUNDS | PARTICIPATION[who]
    with Federation(tmp_path, SILOS, "MQTT_S3", **changes) as federation:
        federation.comm |= mqtt_s3
        federation.config["common_args"]["run_id"] = f"parity {who}".replace(" ", "-")
        assert_same(federation, one_process(SILOS, **changes))
    endpoint = mqtt_s3["customized_training_s3_config"]["CN_S3_ENDPOINT"]
    assert bucket_client(endpoint).list_objects_v2(Bucket="federation")["KeyCount"] == 0
    assert "secret" not in (federation.run_dir / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("backend", "algorithm", "more"),
    [
        ("GRPC", "FedAvg", {"aggregation": "samples"}),
        ("GRPC", "FedProx", {"fedprox_mu": 0.5}),
        ("TRPC", "FedMMD", {"model": "mlp"}),
        ("GRPC", "FedOpt", {"server_optimizer": "yogi"}),
        ("TRPC", "FedDF", {}),
    ],
)
def test_every_other_algorithm_across_silos(
    tmp_path: Path, one_process: Callable[..., Path], backend: str, algorithm: str, more: dict[str, Any]
) -> None:
    changes = {"comm_round": 2, "federated_optimizer": algorithm, **more}
    with Federation(tmp_path, SILOS, backend, **changes) as federation:
        assert_same(federation, one_process(SILOS, **changes))


def test_noise_across_silos_is_each_silos_own(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    """The server knows the run's seed: noise drawn from it could be taken off again."""
    changes = {"comm_round": 2, "clip": 1.0, "sigma": 0.01}
    with Federation(tmp_path, SILOS, "GRPC", **changes) as federation:
        codes = [party.ended() for party in federation.start_all()]
    assert codes == [0] * (SILOS + 1), "\n".join(party.told for party in federation.parties)
    simulated = one_process(SILOS, **changes)
    assert answer(federation.run_dir)[1] != answer(simulated)[1]
    summaries = [json.loads((run_dir / "summary.json").read_text()) for run_dir in (federation.run_dir, simulated)]
    assert summaries[0]["epsilon_server"] == summaries[1]["epsilon_server"] > 0, "the budget is that of one process"
    lines = [json.loads(line) for line in (federation.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["local_loss"] for line in lines] == [None, None], "a loss without noise stays at home"


@pytest.mark.parametrize("backend", ["GRPC", "TRPC", "MQTT_S3"])
def test_scaffolds_variates_travel_to_each_silo_its_own(
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
        assert bucket_client(endpoint).list_objects_v2(Bucket="federation")["KeyCount"] == 0


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


@pytest.mark.parametrize("algorithm", ["MrTF", pytest.param("Scaffold", marks=pytest.mark.slow)])
def test_under_mpirun_too(tmp_path: Path, one_process: Callable[..., Path], algorithm: str) -> None:
    changes = ROUNDS | PARTICIPATION["two of three"] | {"federated_optimizer": algorithm}
    assert answer(over_mpi(tmp_path, changes).run_dir) == answer(one_process(SILOS, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["GRPC", "TRPC", "MPI", "MQTT_S3"])
def test_three_times_each(
    tmp_path: Path, one_process: Callable[..., Path], mqtt_s3: dict[str, Any], backend: str
) -> None:
    for turn in range(3):
        folder = tmp_path / f"turn-{turn}"
        folder.mkdir()
        if backend == "MPI":
            assert answer(over_mpi(folder, ROUNDS).run_dir) == answer(one_process(SILOS, **ROUNDS)), f"turn {turn}"
            continue
        with Federation(folder, SILOS, backend, **ROUNDS) as federation:
            federation.comm |= mqtt_s3
            federation.config["common_args"]["run_id"] = f"turn-{turn}"
            assert_same(federation, one_process(SILOS, **ROUNDS))


def test_clients_judge_where_two_of_three_take_part(one_process: Callable[..., Path]) -> None:
    """Otherwise the tests above would not see what is judged."""
    told = estimates(one_process(SILOS, **ROUNDS, **PARTICIPATION["two of three"]))
    assert told[0] is None
    assert None not in told[1:]


def test_two_of_three_are_not_always_the_same_two() -> None:
    """Otherwise the tests above would not see who is chosen."""
    chosen = {tuple(chosen_clients(index, SILOS, 2, seed=3)) for index in range(ROUNDS["comm_round"])}
    assert len(chosen) > 1
