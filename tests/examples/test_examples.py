"""The examples in FedML's layout, copied and run as a FedML user does: `sh run_one_line_example.sh`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.backends.cross_silo.federation import PATIENCE, Party, free_ports, grpc_table

ROOT = Path(__file__).parents[2]
NAME = "torch_mrtf_mnist_lr"
BACKENDS = ("sp", "mpi", "grpc", "mqtt_s3")
VARIANTS = ("one_line", "step_by_step", "custom_data_and_model")
#: The digits that the server labels.
SAMPLES = 599


def copied(backend: str, folder: Path, **comm_args: Any) -> Path:
    """The example alone, elsewhere, with two short rounds."""
    example = shutil.copytree(ROOT / "examples" / f"{backend}_{NAME}_example", folder / backend)
    file = example / "config" / "fedml_config.yaml"
    config = yaml.safe_load(file.read_text())
    config["train_args"] |= {"comm_round": 2, "epochs": 1}
    config["mrtf_args"]["refine_steps"] = 8
    config["comm_args"] |= comm_args
    file.write_text(yaml.safe_dump(config))
    return example


def environment() -> dict[str, str]:
    """A user's, who has installed the project."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "OMP_NUM_THREADS": "1",
    }


def by_script(example: Path, variant: str, *words: str) -> str:
    """The predictions of the script, called as a user does."""
    before = set(example.glob("runs/*"))
    result = subprocess.run(
        ["sh", str(example / f"run_{variant}_example.sh"), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    logs = [log.read_text() for log in example.glob("*.log")]
    assert result.returncode == 0, "\n".join([result.stdout, result.stderr, *logs])
    return answer_of(example, before)


def by_forks(example: Path, variant: str, monkeypatch: pytest.MonkeyPatch, parties: int = 1) -> str:
    """The predictions of the program, in processes that have imported FedML already: server first."""
    monkeypatch.chdir(example)
    before = set(example.glob("runs/*"))
    program = f"{NAME}_{variant}_example.py"
    started = [
        Party(_program, [program, str(rank), "client" if rank else "server"], example / f"{rank}.log")
        for rank in range(parties)
    ]
    try:
        assert [party.wait() for party in started] == [0] * parties, "\n".join(party.output for party in started)
    finally:
        for party in started:
            party.process.kill()
    return answer_of(example, before)


def _program(words: list[str]) -> int:
    import runpy

    import torch

    torch.set_num_threads(1)
    program, rank, role = words
    sys.argv = [program, "--cf", "config/fedml_config.yaml", "--rank", rank, "--role", role]
    runpy.run_path(program, run_name="__main__")
    return 0


def answer_of(example: Path, before: set[Path]) -> str:
    """The predictions of the one run that was made; silos have folders of their own, without predictions."""
    (run_dir,) = {path for path in example.glob("runs/*") if (path / "predictions.csv").exists()} - before
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["algorithm"], summary["preset"], summary["rounds"]) == ("MrTF", "tuned", 2)
    assert (summary["samples_labelled"], summary["device"]) == (SAMPLES, "cpu")
    assert (run_dir / "report.html").exists()
    return (run_dir / "predictions.csv").read_text()


@pytest.mark.slow
def test_example_programs_in_one_process_and_under_mpi_give_equal_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, ranks = copied("sp", tmp_path), copied("mpi", tmp_path)
    predictions = by_script(alone, "one_line")
    assert by_forks(alone, "step_by_step", monkeypatch) == predictions
    assert by_forks(alone, "custom_data_and_model", monkeypatch) != predictions
    assert by_script(ranks, "one_line", "1") == predictions


@pytest.mark.slow
def test_grpc_example_finishes(tmp_path: Path) -> None:
    table = grpc_table(tmp_path / "grpc_ipconfig.csv", free_ports(3))
    example = copied("grpc", tmp_path)
    shipped = example / "config" / "grpc_ipconfig.csv"
    assert shipped.read_text().splitlines()[0] == table.read_text().splitlines()[0]
    shutil.copy(table, shipped)
    by_script(example, "one_line")


@pytest.mark.slow
def test_mqtt_s3_example_with_own_data_and_model_finishes(
    tmp_path: Path, mqtt_s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_forks(copied("mqtt_s3", tmp_path, **mqtt_s3), "custom_data_and_model", monkeypatch, parties=3)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_example_script_finishes(backend: str, variant: str, tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    example = copied(backend, tmp_path, **(mqtt_s3 if backend == "mqtt_s3" else {}))
    if backend == "grpc":
        grpc_table(example / "config" / "grpc_ipconfig.csv", free_ports(3))
    by_script(example, variant)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["grpc", "mqtt_s3"])
def test_example_server_and_client_scripts_finish(backend: str, tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    """A folder for each party, as on machines of their own; a silo comes before the server."""
    comm_args = mqtt_s3 if backend == "mqtt_s3" else {}
    folders = [copied(backend, tmp_path / str(rank), **comm_args) for rank in range(3)]
    ports = free_ports(3)
    for folder in folders if backend == "grpc" else []:
        grpc_table(folder / "config" / "grpc_ipconfig.csv", ports)
    calls = [["run_server.sh", "step_by_step"], *(["run_client.sh", str(rank), "step_by_step"] for rank in (1, 2))]
    started: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for rank in (1, 0, 2):
            with (tmp_path / f"{rank}.log").open("wb") as log:
                # A group of its own: whatever the script has started ends with it.
                started[rank] = subprocess.Popen(
                    ["sh", *calls[rank]],
                    cwd=folders[rank],
                    env=environment(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        codes = [started[rank].wait(4 * PATIENCE) for rank in range(3)]
        assert codes == [0, 0, 0], "\n".join(log.read_text() for log in tmp_path.glob("*.log"))
    finally:
        for process in started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    answer_of(folders[0], set())
    predictions = [file for folder in folders[1:] for file in folder.glob("runs/*/predictions.csv")]
    assert predictions == [], "only the server writes predictions"


def test_example_programs_not_run_equal_those_run() -> None:
    """Each folder is self-contained, so the programs are copies: a test of one covers all."""
    for variant in VARIANTS:
        programs = {
            backend: (ROOT / "examples" / f"{backend}_{NAME}_example" / f"{NAME}_{variant}_example.py").read_text()
            for backend in BACKENDS
        }
        assert programs["grpc"] == programs["mqtt_s3"]
        if variant != "one_line":
            assert len(set(programs.values())) == 1
    for backend in BACKENDS:
        folder = ROOT / "examples" / f"{backend}_{NAME}_example"
        scripts = [(folder / f"run_{variant}_example.sh").read_text() for variant in VARIANTS]
        general = {script.replace(variant, "") for script, variant in zip(scripts, VARIANTS, strict=True)}
        assert len(general) == 1, f"the scripts of {backend} differ in more than the program's name"
        readme = (folder / "README.md").read_text()
        assert "without a download" in readme
