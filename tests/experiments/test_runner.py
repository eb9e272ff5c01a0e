"""Runner, default_jobs and ComparisonProgress."""

from __future__ import annotations

import fcntl
import io
import os
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.experiments.plan import Trial, plan_trials
from mrtf_fedml.experiments.runner import ComparisonProgress, Runner, default_jobs
from tests.conftest import small_config


def test_runner_waits_for_a_run_locked_by_another_process_and_reports_it_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial("FedAvg", 0, "", {}, "key")
    runner = Runner(tmp_path, 1, ComparisonProgress(), {"key": "MNIST, C̄=3"})
    runner.folder.mkdir()
    todo = [trial]
    with (runner.folder / "key.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [runner._start(todo, 1) for _ in range(2)] == [[], []]
    assert todo == [trial], "the trial is still pending"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("MNIST, C̄=3: FedAvg, seed 0: waiting")


def test_failure_message_without_a_log_names_the_run(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 1, ComparisonProgress())
    message = runner._failure_message(Trial("FedAvg", 0, "", {}, "key"))
    assert "FedAvg, seed 0 failed" in message


@pytest.fixture
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    _with_gigabytes(monkeypatch, 64)


def _with_gigabytes(monkeypatch: pytest.MonkeyPatch, gigabytes: int) -> None:
    sizes = {"SC_PHYS_PAGES": gigabytes << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)


def _trials(seeds: int, **changes: Any) -> list[Trial]:
    return plan_trials(small_config(**changes), ["FedAvg", "MrTF:paper"], seeds, [], False, [])


@pytest.mark.usefixtures("_eight_cores")
@pytest.mark.parametrize(
    ("seeds", "changes", "jobs"),
    [
        (10, {}, 8),
        (10, {"threads": 3}, 2),
        (10, {"threads": 16}, 1),
        (2, {}, 4),
        (10, {"using_gpu": True}, 1),
    ],
)
def test_default_jobs_is_cores_by_threads_and_at_most_the_number_of_runs(
    seeds: int, changes: dict[str, Any], jobs: int
) -> None:
    assert default_jobs(_trials(seeds, **changes)) == jobs


@pytest.mark.usefixtures("_eight_cores")
def test_default_jobs_follows_omp_num_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert default_jobs(_trials(10, threads=8)) == 4


@pytest.mark.usefixtures("_eight_cores")
def test_default_jobs_is_limited_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_gigabytes(monkeypatch, 6)
    assert default_jobs(_trials(10)) == 3
    _with_gigabytes(monkeypatch, 1)
    assert default_jobs(_trials(10)) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output_of(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    progress = ComparisonProgress()
    progress.start(rounds=40, done=4)
    progress.show(lambda: 4)
    progress.show(lambda: 30)
    progress.print_line("1/2  FedAvg, seed 0")
    progress.close()
    progress.print_line("after it")
    return stream.getvalue()


def test_progress_on_a_terminal_shows_a_bar_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    output = output_of(Terminal(), monkeypatch)
    assert "all runs" in output
    assert "30/40" in output
    assert "1/2  FedAvg, seed 0\n" in output
    assert output.endswith("after it\n")


def test_progress_on_a_file_shows_only_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output_of(io.StringIO(), monkeypatch) == "1/2  FedAvg, seed 0\nafter it\n"
