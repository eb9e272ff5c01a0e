"""launch/cross_silo.sh: a federation from one command, its exit code, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.cross_silo.federation import PATIENCE, Federation, wait_until
from tests.conftest import write_yaml

ROOT = Path(__file__).parents[3]


def start(federation: Federation) -> subprocess.Popen[str]:
    """The script, in the environment that runs this test."""
    variables = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    file = write_yaml(federation.folder / "config.yaml", federation.config)
    return subprocess.Popen(
        ["bash", str(ROOT / "launch" / "cross_silo.sh"), str(file)],
        env=variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_script_runs_server_and_silos(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 2, comm_round=1)
    with start(federation) as process:
        stdout, stderr = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, stderr
    assert "starting 2 silos" in stderr
    assert "round 1/1" in stderr
    assert "samples labelled" in stdout
    assert (federation.run_dir / "predictions.csv").exists()


@pytest.mark.slow
def test_script_ctrl_c_ends_all_parties(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 2, comm_round=500)
    with start(federation) as process:
        wait_until(lambda: federation.rounds_done() >= 1, "a round", 2 * PATIENCE)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == "", "a party is still running"


@pytest.mark.slow
def test_script_with_wrong_training_type_ends_with_code_2(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 2)
    federation.config["common_args"]["training_type"] = "simulation"
    with start(federation) as process:
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "common_args.training_type" in stderr
