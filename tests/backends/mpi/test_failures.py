"""A run whose rank fails, is killed or is interrupted ends at once, on all ranks, and can be gone on with."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.process.logs import log_path

from .conftest import (
    END_SECONDS,
    START_SECONDS,
    changed_config,
    configuration,
    first_round_done,
    is_gone,
    program,
    rank_processes,
    running,
    wait_for,
)


def assert_resumable(run_dir: Path) -> None:
    """The folder is whole: one process does one more round of it."""
    done = len((run_dir / "metrics.jsonl").read_text().splitlines())
    assert done >= 1
    words = ["run", "--resume", str(run_dir), "--set", "backend=sp", "--set", f"comm_round={done + 1}"]
    assert main(words) == 0
    assert len((run_dir / "metrics.jsonl").read_text().splitlines()) == done + 1
    assert json.loads((run_dir / "summary.json").read_text())["rounds"] == done + 1


def end_by(run_dir: Path, ranks: int, victim: int | None, number: signal.Signals, pause: float = 0.0) -> str:
    """Start a long run, send the signal to a rank or to mpirun, wait for all to end; returns the output."""
    file = configuration(run_dir.parent, run_dir=str(run_dir), comm_round=100_000)
    with running(ranks, file) as process:
        wait_for(lambda: first_round_done(run_dir) or process.poll() is not None)
        time.sleep(pause)
        processes = rank_processes(process.pid)
        assert sorted(processes) == list(range(ranks)), process.poll()
        os.kill(process.pid if victim is None else processes[victim], number)
        output, _ = process.communicate(timeout=END_SECONDS)
        assert process.returncode != 0
        wait_for(lambda: all(is_gone(each) for each in processes.values()), END_SECONDS)
    return output


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_killed_rank_ends_the_run_resumably(tmp_path: Path, victim: int) -> None:
    end_by(tmp_path / "run", 2, victim, signal.SIGKILL)
    assert_resumable(tmp_path / "run")


@pytest.mark.slow
def test_sigint_ends_the_run_resumably(tmp_path: Path) -> None:
    output = end_by(tmp_path / "run", 2, None, signal.SIGINT)
    assert "Traceback" not in output
    assert_resumable(tmp_path / "run")


@pytest.mark.slow
def test_rank_that_raises_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    file = configuration(tmp_path, run_dir=str(tmp_path / "run"), comm_round=100_000)
    # FedML's get_device asks for these names, GPU or not.
    changed_config(file, gpu_mapping_file=None, gpu_mapping_key=None)
    result = program(2, "failing_trainer.py", file)
    assert result.returncode == 1
    assert "rank 0 holds 599 of the server's inputs" in result.stdout
    assert "rank 1 holds 0 of the server's inputs" in result.stdout, "trainers are the clients, in a FedML project too"
    assert "RuntimeError: the disk is on fire" in result.stderr
    assert "RuntimeError: the disk is on fire" in log_path(tmp_path / "run", 1).read_text()
    assert_resumable(tmp_path / "run")


@pytest.mark.slow
def test_rank_that_hangs_is_named_and_ends_the_run_after_rank_timeout(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    file = configuration(tmp_path, run_dir=str(run_dir), comm_round=100_000, rank_timeout=12.0)
    with running(2, file) as process:
        wait_for(lambda: first_round_done(run_dir) or process.poll() is not None)
        processes = rank_processes(process.pid)
        os.kill(processes[1], signal.SIGSTOP)
        output, _ = process.communicate(timeout=12 + 2 * END_SECONDS)
        assert process.returncode == 1
        wait_for(lambda: all(is_gone(each) for each in processes.values()), END_SECONDS)
    warned, ended = (
        output.index("rank 1 has returned nothing for client"),
        output.index("within 12 s (comm_args.rank_timeout)"),
    )
    assert warned < ended
    assert "Traceback" not in output
    assert_resumable(run_dir)


@pytest.mark.slow
def test_ranks_killed_at_random_in_twenty_runs_leave_resumable_runs(tmp_path: Path) -> None:
    """None hangs, none leaves a corrupt folder, wherever in a round the kill falls."""
    chance = random.Random(0)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        end_by(folder / "run", 3, chance.randrange(3), signal.SIGKILL, pause=chance.uniform(0.0, 2.0))
        assert_resumable(folder / "run")


def resident_megabytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
def test_memory_of_each_rank_is_constant_over_50_rounds(tmp_path: Path) -> None:
    """The quickstart at 4 ranks: what each holds after 50 rounds it held after 10."""
    run_dir = tmp_path / "run"
    changes = ["--set", "backend=MPI", "--set", "comm_round=50", "--set", f"run_dir={run_dir}", "--set", "threads=1"]
    seen: dict[int, dict[int, float]] = {}
    with running(4, "fedml_configs/quickstart.yaml", *changes) as process:
        deadline = time.monotonic() + 4 * START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            metrics = run_dir / "metrics.jsonl"
            done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
            for rank, number in rank_processes(process.pid).items():
                if not is_gone(number) and done < 50:
                    seen.setdefault(done, {})[rank] = resident_megabytes(number)
            time.sleep(0.1)
        output, _ = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, output
    early, late = (max(done for done in seen if done <= limit and len(seen[done]) == 4) for limit in (10, 49))
    assert late - early >= 30
    print({rank: (round(seen[early][rank], 1), round(seen[late][rank], 1)) for rank in range(4)})
    for rank in range(4):
        assert seen[late][rank] - seen[early][rank] < 20, seen
