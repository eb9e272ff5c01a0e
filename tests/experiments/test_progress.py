"""The bar over a comparison's rounds: on a terminal alone."""

from __future__ import annotations

import io

import pytest

from mrtf_fedml.experiments.progress import ComparisonProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told_by(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    progress = ComparisonProgress()
    progress.start(rounds=40, done=4)
    progress.show(lambda: 4)
    progress.show(lambda: 30)
    progress.tell("1/2  FedAvg, seed 0")
    progress.close()
    progress.tell("after it")
    return stream.getvalue()


def test_a_terminal_sees_all_rounds_and_the_lines_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_by(Terminal(), monkeypatch)
    assert "all runs" in told
    assert "30/40" in told
    assert "1/2  FedAvg, seed 0\n" in told
    assert told.endswith("after it\n")


def test_a_file_gets_the_lines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told_by(io.StringIO(), monkeypatch) == "1/2  FedAvg, seed 0\nafter it\n"
