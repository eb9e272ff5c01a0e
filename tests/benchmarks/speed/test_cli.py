"""`python benchmarks/speed --quick` works; no time is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.speed.cli import main, select_benchmarks


def test_quick_benchmarks_write_their_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert main(["refine", "local", "round", "classes", "ridge", "peers", "--quick", "--out", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert list(figures["benchmarks"]) == ["refine", "local", "round", "classes", "ridge", "peers"]
    for rows in figures["benchmarks"].values():
        assert rows
        for row in rows:
            assert row["low"] <= row["ratio"] <= row["high"]
            assert row["ratio"] > 0
    output = capsys.readouterr().out
    assert all(row["name"] in output for rows in figures["benchmarks"].values() for row in rows)


def test_wrong_benchmark_options_exit_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["refin"]) == 2
    assert "there is no benchmark 'refin'; did you mean 'refine'" in capsys.readouterr().err
    assert main(["refine", "--compare", str(tmp_path / "none.json")]) == 2
    assert "is no file of results" in capsys.readouterr().err
    quick = tmp_path / "quick.json"
    quick.write_text(json.dumps({"quick": True, "benchmarks": {}}))
    assert main(["refine", "--compare", str(quick)]) == 2
    assert "mean nothing" in capsys.readouterr().err


def test_precision_is_used_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes: list[str] = []
    autocast = torch.autocast

    def record_dtype(device: str, dtype: torch.dtype, **given: Any) -> Any:
        dtypes.append(str(dtype))
        return autocast(device, dtype=dtype, **given)

    monkeypatch.setattr(torch, "autocast", record_dtype)
    file = tmp_path / "figures.json"
    assert main(["local", "--quick", "--precision", "bf16", "--out", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["precision"] == "bf16"
    assert len(figures["benchmarks"]["local"]) == 3
    assert set(dtypes) == {"torch.bfloat16"}
    dtypes.clear()
    assert main(["local", "--quick", "--out", str(file)]) == 0
    assert json.loads(file.read_text())["precision"] == "float32"
    assert dtypes == []


def test_results_of_two_precisions_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "before.json"
    for written, requested in (({"precision": "bf16"}, "float32"), ({"precision": "float32"}, "bf16"), ({}, "bf16")):
        file.write_text(json.dumps({"quick": False, "benchmarks": {}, **written}))
        assert main(["local", "--precision", requested, "--compare", str(file)]) == 2
        assert "ratios of two precisions do not compare" in capsys.readouterr().err
    assert main(["clients", "--precision", "bf16"]) == 2
    assert "clients supports only float32" in capsys.readouterr().err
    assert select_benchmarks([], "bf16") == ["refine", "local", "round"]
    assert "clients" in select_benchmarks([])
