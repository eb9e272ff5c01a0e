"""`mrtf bench --quick` works; no time is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.cli import main
from mrtf_fedml.speed.suite import chosen


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


def test_a_precision_is_what_all_computes_in_and_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    autocast = torch.autocast

    def noticed(device: str, dtype: torch.dtype, **given: Any) -> Any:
        asked.append(str(dtype))
        return autocast(device, dtype=dtype, **given)

    monkeypatch.setattr(torch, "autocast", noticed)
    file = tmp_path / "figures.json"
    assert main(["bench", "local", "--quick", "--precision", "bf16", "--out", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["precision"] == "bf16"
    assert len(figures["benchmarks"]["local"]) == 3
    assert set(asked) == {"torch.bfloat16"}
    asked.clear()
    assert main(["bench", "local", "--quick", "--out", str(file)]) == 0
    assert json.loads(file.read_text())["precision"] == "float32"
    assert asked == []


def test_figures_of_two_precisions_are_not_held_against_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "before.json"
    for written, asked in (({"precision": "bf16"}, "float32"), ({"precision": "float32"}, "bf16"), ({}, "bf16")):
        file.write_text(json.dumps({"quick": False, "benchmarks": {}, **written}))
        assert main(["bench", "local", "--precision", asked, "--compare", str(file)]) == 2
        assert "ratios of two precisions do not compare" in capsys.readouterr().err
    assert main(["bench", "clients", "--precision", "bf16"]) == 2
    assert (
        "clients is measured in float32 alone; --precision bf16 is for refine, local, round" in capsys.readouterr().err
    )
    assert chosen([], "bf16") == ["refine", "local", "round"]
    assert "clients" in chosen([])
