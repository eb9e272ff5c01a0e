"""An existing FedML project runs MrTF through FedML's entry points, in one process and across silos."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.backends.cross_silo.federation import Party, free_ports, grpc_table
from tests.fedml_bridge.leaf_mnist import (
    SERVER_SAMPLES,
    WRITERS,
    run_client,
    run_server,
    run_simulation,
    write_project,
)


def test_fedml_project_gives_equal_predictions_in_one_process_and_across_silos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = {}
    for name in ("simulation", "silos"):
        folder = tmp_path / name
        folder.mkdir()
        # The project names no run_dir, so its runs are in its own folder.
        monkeypatch.chdir(folder)
        parties = _start(folder, across_silos=name == "silos")
        try:
            assert [party.wait() for party in parties] == [0] * len(parties), parties[0].output
        finally:
            for party in parties:
                party.process.kill()
        # Each silo has a folder for its audit log.
        (run_dir,) = (folder / "runs").glob("mnist-MrTF-*")
        assert (run_dir / "report.html").exists()
        predictions[name] = (run_dir / "predictions.csv").read_bytes()
        assert predictions[name].count(b"\n") == SERVER_SAMPLES + 1
    assert predictions["simulation"] == predictions["silos"]


def _start(folder: Path, across_silos: bool) -> list[Party]:
    if not across_silos:
        words = ["--cf", str(write_project(folder, "MrTF"))]
        return [Party(run_simulation, words, folder / "log")]
    table = grpc_table(folder / "grpc.csv", free_ports(WRITERS + 1))
    file = write_project(folder, "MrTF", backend="GRPC", grpc_ipconfig_path=str(table), silo_timeout=60)
    words = ["--cf", str(file)]
    assert Path(os.getcwd()) == folder
    silos = range(1, WRITERS + 1)
    return [
        Party(run_server, words, folder / "server.log"),
        *(Party(run_client, [*words, "--rank", str(rank)], folder / f"silo{rank}.log") for rank in silos),
    ]
