"""Runs that another process is at work on, and runs that end before they can say why."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from mrtf_fedml.experiments.plan import Trial
from mrtf_fedml.experiments.progress import ComparisonProgress
from mrtf_fedml.experiments.runner import Runner


def test_a_run_of_another_process_is_waited_for_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial("FedAvg", 0, "", {}, "key")
    runner = Runner(tmp_path, 1, ComparisonProgress(), {"key": "MNIST, C̄=3"})
    runner.folder.mkdir()
    todo = [trial]
    with (runner.folder / "key.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [runner._start(todo, 1) for _ in range(2)] == [[], []]
    assert todo == [trial], "it is still to be done"
    told = capsys.readouterr().err.splitlines()
    assert told == ["MNIST, C̄=3: FedAvg, seed 0: another process is at work on it, and is waited for"]


def test_a_run_that_was_killed_before_it_had_a_log_is_told_too(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 1, ComparisonProgress())
    reason = runner._why(Trial("FedAvg", 0, "", {}, "key"))
    assert reason == "the run FedAvg, seed 0 failed: it ended before it could say why; start the comparison again"
