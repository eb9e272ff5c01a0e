"""Failures of parties over TRPC, MQTT_S3 and MPI, where a run can continue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.backends.cross_silo.federation import PATIENCE, Federation, wait_until
from tests.conftest import write_yaml


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["TRPC", "MQTT_S3"])
def test_killed_silo_does_not_block_the_others(tmp_path: Path, mqtt_s3: dict[str, Any], backend: str) -> None:
    with Federation(tmp_path, 3, backend, comm_round=6, refine_steps=200) as federation:
        federation.comm |= mqtt_s3 | {"silo_timeout": 15.0}
        federation.config["common_args"]["run_id"] = "killed-silo"
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill()
        assert [party.wait() for party in (server, first, second)] == [0, 0, 0], server.output
        lines = [json.loads(line) for line in (federation.run_dir / "metrics.jsonl").read_text().splitlines()]
        assert len(lines) == 6
        assert 2 in lines[0]["clients"]
        assert 2 not in lines[-1]["clients"] or "2" in lines[-1]["excluded_clients"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["TRPC", "MQTT_S3"])
def test_killed_server_ends_its_silos(tmp_path: Path, mqtt_s3: dict[str, Any], backend: str) -> None:
    with Federation(tmp_path, 2, backend, comm_round=500) as federation:
        federation.comm |= mqtt_s3 | {"silo_timeout": 15.0}
        federation.config["common_args"]["run_id"] = "killed-server"
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        server.kill()
        for rank, silo in enumerate(silos, start=1):
            assert silo.wait() == 1
            assert f"silo {rank} has received nothing from the server for 15 s" in silo.output


@pytest.mark.slow
def test_missing_broker_is_named(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    with Federation(tmp_path, 2, "MQTT_S3") as federation:
        nowhere = mqtt_s3["customized_training_mqtt_config"] | {"BROKER_PORT": 1}
        federation.comm |= mqtt_s3 | {"start_timeout": 3.0, "customized_training_mqtt_config": nowhere}
        silo = federation.start(1)
        assert silo.wait() == 1
        assert "the MQTT broker at 127.0.0.1:1 could not be reached for 3 s" in silo.output


@pytest.mark.slow
def test_mpirun_ends_all_ranks_when_one_is_killed(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 2, "MPI", comm_round=500)
    file = write_yaml(tmp_path / "mpi.yaml", federation.config)
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun) if mpirun.exists() else "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3"]
    command += [sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(file)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: federation.rounds_done() >= 1, "a round", 2 * PATIENCE)
            silo = _ranks(process.pid)[-1]
            os.kill(silo, signal.SIGKILL)
            assert process.wait(PATIENCE) != 0
        finally:
            process.kill()
    done = federation.rounds_done()
    time.sleep(2)
    assert federation.rounds_done() == done, "no party continues"


def _ranks(mpirun: int) -> list[int]:
    """The processes that mpirun has started, by rank."""
    children = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            ranks = [word.partition(b"=")[2] for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
            if ranks and parent == mpirun:
                children.append((int(ranks[0]), int(folder.name)))
    return [pid for _, pid in sorted(children)]
