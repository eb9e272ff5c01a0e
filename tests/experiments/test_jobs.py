"""How many runs at once follows from the machine, the plan and its threads."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mrtf_fedml.experiments.jobs import chosen_jobs
from mrtf_fedml.experiments.plan import Trial, planned
from tests.conftest import small_config


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    _with_gigabytes(monkeypatch, 64)


def _with_gigabytes(monkeypatch: pytest.MonkeyPatch, gigabytes: int) -> None:
    sizes = {"SC_PHYS_PAGES": gigabytes << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)


def _trials(seeds: int, **changes: Any) -> list[Trial]:
    return planned(small_config(**changes), ["FedAvg", "MrTF:paper"], seeds, [], False, [])


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
def test_cores_by_threads_and_never_more_than_runs(seeds: int, changes: dict[str, Any], jobs: int) -> None:
    assert chosen_jobs(_trials(seeds, **changes)) == jobs


def test_the_environment_s_threads_win_as_they_do_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert chosen_jobs(_trials(10, threads=8)) == 4


def test_memory_bounds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_gigabytes(monkeypatch, 6)
    assert chosen_jobs(_trials(10)) == 3
    _with_gigabytes(monkeypatch, 1)
    assert chosen_jobs(_trials(10)) == 1
