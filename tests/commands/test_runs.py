"""`mrtf runs`: one line per run folder, also of those that ended badly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.report.runs import write_run


def test_runs_prints_one_line_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, train = {"dataset": "digits"}, {"federated_optimizer": "MrTF", "comm_round": 3}
    sections = {"data_args": data, "train_args": train}
    write_run(tmp_path / "scored", config=sections, algorithm="MrTF", accuracy=0.5, interrupted=False, stopped=None)
    by_loader = {"data_args": {**data, "loader": "mine:load"}, "train_args": train}
    keys = {"algorithm": "MrTF", "accuracy": None, "stop_reason": None, "warnings": ["a", "b"]}
    keys |= {"estimated_accuracy": 0.8, "estimated_accuracy_interval": [0.7, 0.86]}
    write_run(tmp_path / "unlabelled", config=by_loader, labelled=False, interrupted=True, **keys)
    write_run(tmp_path / "going", config=sections, ended=False)
    write_run(tmp_path / "young", config=sections, ended=False, metrics=[])
    write_run(tmp_path / "broken", config=sections)
    (tmp_path / "broken" / "summary.json").write_text("{")
    (tmp_path / "no run").mkdir()
    for age, name in enumerate(("scored", "unlabelled", "going", "young", "broken")):
        os.utime(tmp_path / name / "config.yaml", (1_000_000_000 + age, 1_000_000_000 + age))
    assert main(["runs", str(tmp_path)]) == 0
    head, *lines, note = capsys.readouterr().out.splitlines()
    assert "estimated by the clients" in note
    assert head.split() == ["folder", "started", "data", "algorithm", "rounds", "accuracy", "state"]
    cells = [[cell for cell in line.split("  ") if cell] for line in lines]
    printed = [[row[0].strip(), *(cell.strip() for cell in row[2:])] for row in cells]
    assert printed == [
        ["scored", "digits", "MrTF", "3/3", "0.5000", "finished"],
        ["unlabelled", "mine:load", "MrTF", "3/3", "~0.80 (0.70 to 0.86)", "interrupted, 2 warnings"],
        ["going", "digits", "MrTF", "3/3", "-", "not ended"],
        ["young", "digits", "MrTF", "0/3", "-", "no round finished"],
        ["broken", "-", "-", "-", "-", "its files cannot be read"],
    ]


def test_runs_of_an_empty_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "no run in" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_mrtf_without_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "predict" in capsys.readouterr().out


def test_runs_compare_prints_agreement_and_differing_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rate in (("one", 0.1), ("other", 0.5)):
        train = {"federated_optimizer": "MrTF", "comm_round": 3, "learning_rate": rate}
        write_run(tmp_path / name, config={"data_args": {"dataset": "digits"}, "train_args": train})
    assert main(["runs", "--compare", str(tmp_path / "one"), str(tmp_path / "other")]) == 0
    output = capsys.readouterr().out
    assert "same label" in output
    assert "100.0% of" in output
    (line,) = [line for line in output.splitlines() if "learning_rate" in line]
    assert line.split() == ["train_args.learning_rate", "0.1", "0.5"]
    assert main(["runs", "--compare", str(tmp_path / "one"), str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err
