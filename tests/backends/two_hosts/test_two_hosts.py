"""A run over two hosts: ranks that read teachers, and silos whose link is cut for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.backends.cross_silo.federation import free_ports, wait_until
from tests.backends.two_hosts.hosts import ADDRESSES, TwoHosts, two_hosts
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml
from tests.fedml_bridge.backends.cross_silo.transports.test_grpc import both_forms

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="two hosts are two network namespaces, which root alone can make"),
]

#: A loaded machine takes a minute to import FedML in each process.
SECONDS = 600.0
#: Longer than the server tries to reach a silo.
CUT_SECONDS = 15.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    with two_hosts(tmp_path) as made:
        yield made


def one_process(folder: Path, **changes: object) -> Path:
    config = small_config(run_dir=str(folder / "alone"), **changes)
    assert main(["run", "--cf", str(write_yaml(folder / "alone.yaml", config))]) == 0
    return folder / "alone"


def finish(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the process has ended well."""
    try:
        assert process.wait(SECONDS) == 0, log.read_text(errors="replace")[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_ranks_on_two_hosts(tmp_path: Path, hosts: TwoHosts) -> None:
    """Predictions equal those of one process, also where the ranks read the teachers."""
    (tmp_path / "hosts").write_text("alpha slots=2\nbeta slots=2\n")
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by", "node", "-n", "3"]
    mpirun += ["--prtemca", "plm_ssh_agent", str(hosts.agent), "--hostfile", str(tmp_path / "hosts")]
    mpirun += [word for name in ("PATH", "PYTHONPATH") for word in ("-x", name)]
    for refine_on in ("server", "teachers"):
        run_dir = tmp_path / refine_on
        config = small_config(backend="MPI", refine_on=refine_on, run_dir=str(run_dir))
        file = write_yaml(tmp_path / f"{refine_on}.yaml", config)
        log = tmp_path / f"{refine_on}.log"
        finish(hosts.start("alpha", *mpirun, "mrtf", "run", "--cf", str(file), log=log), log)
        assert len(read_metrics(run_dir)) == 2
    assert (
        output_bytes(tmp_path / "server") == output_bytes(tmp_path / "teachers") == output_bytes(one_process(tmp_path))
    )


@both_forms
def test_silos_reconnect_after_broken_link_and_predictions_are_equal(
    tmp_path: Path, hosts: TwoHosts, connection: str
) -> None:
    """With min_clients 2 the round waits for the broken link, and the results equal those of one process."""
    federation = {"client_num_in_total": 2, "client_num_per_round": 2, "classes_per_client": 5, "comm_round": 12}
    config = small_config(
        training_type="cross_silo",
        backend="GRPC",
        connection=connection,
        run_dir=str(tmp_path / "run"),
        silo_timeout=200.0,
        start_timeout=SECONDS,
        min_clients=2,
        **federation,
    )
    port = free_ports(1)[0]
    places = [ADDRESSES["alpha"], ADDRESSES["beta"], ADDRESSES["beta"]]
    rows = [f"{rank},{rank},{address},{port + rank}" for rank, address in enumerate(places)]
    (tmp_path / "grpc.csv").write_text("\n".join(["eid,rank,grpc_server_ip,grpc_server_port", *rows]) + "\n")
    file = write_yaml(tmp_path / "c.yaml", config)
    processes = []
    for rank, host in enumerate(("alpha", "beta", "beta")):
        words = ["mrtf", "run", "--cf", str(file), "--rank", str(rank), "--set"]
        # The file has no such key.
        words += [f"grpc_ipconfig_path={tmp_path / 'grpc.csv'}"]
        processes.append(hosts.start(host, *words, log=tmp_path / f"{rank}.log"))
    try:
        lines = tmp_path / "run" / "metrics.jsonl"
        wait_until(lambda: lines.exists() and lines.read_text().count("\n") >= 2, "two rounds", SECONDS)
        done = len(read_metrics(tmp_path / "run"))
        hosts.cut()
        time.sleep(CUT_SECONDS)
        assert done <= len(read_metrics(tmp_path / "run")) <= done + 1, "no round is finished without its silos"
        hosts.mend()
        for rank, process in enumerate(processes):
            finish(process, tmp_path / f"{rank}.log")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert [line["excluded_clients"] for line in read_metrics(tmp_path / "run")] == [{}] * 12
    assert output_bytes(tmp_path / "run") == output_bytes(one_process(tmp_path, **federation))
