"""`mrtf bench --quick` works; no time is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrtf_fedml.cli import main


def test_the_quick_benchmarks_run_and_write_their_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert main(["bench", "refine", "local", "round", "classes", "peers", "--quick", "--out", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert list(figures["benchmarks"]) == ["refine", "local", "round", "classes", "peers"]
    for rows in figures["benchmarks"].values():
        assert rows
        for row in rows:
            assert row["low"] <= row["ratio"] <= row["high"]
            assert row["ratio"] > 0
    told = capsys.readouterr().out
    assert all(row["name"] in told for rows in figures["benchmarks"].values() for row in rows)


def test_what_a_benchmark_cannot_do_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "refin"]) == 2
    assert "there is no benchmark 'refin'; did you mean 'refine'" in capsys.readouterr().err
    assert main(["bench", "refine", "--compare", str(tmp_path / "none.json")]) == 2
    assert "is no file of figures" in capsys.readouterr().err
    quick = tmp_path / "quick.json"
    quick.write_text(json.dumps({"quick": True, "benchmarks": {}}))
    assert main(["bench", "refine", "--compare", str(quick)]) == 2
    assert "mean nothing" in capsys.readouterr().err
