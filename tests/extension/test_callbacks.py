"""Callbacks of a user's own: called in their places, heard when they stop a run, and their numbers kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.conftest import metrics, write_yaml
from tests.extension.conftest import answer, ran, scene

WATCHING, ENOUGH, ALREADY = (f"tests.extension.watching:{name}" for name in ("Watching", "Enough", "EnoughAlready"))


def test_it_sees_the_run_and_its_numbers_are_kept(tmp_path: Path) -> None:
    plain = ran(tmp_path, scene("MrTF", comm_round=2), "plain")
    run_dir = ran(tmp_path, scene("MrTF", comm_round=2, callbacks=[WATCHING]))
    assert (run_dir / "watched.txt").read_text() == "start 0 of 2\nround 0\nround 1\nend 2\n"
    assert all(0.1 < line["confidence"] < 1 for line in metrics(run_dir))
    assert answer(run_dir) == answer(plain), "who only watches changes nothing"
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=3"]) == 0
    assert (run_dir / "watched.txt").read_text().endswith("end 2\nstart 2 of 3\nround 2\nend 3\n")


@pytest.mark.parametrize("callback", [ENOUGH, ALREADY])
def test_it_may_stop_the_run_which_ends_well(tmp_path: Path, callback: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = ran(tmp_path, scene("MrTF", callbacks=[callback]))
    assert "1 of 3 in" in capsys.readouterr().out
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["rounds"], summary["interrupted"]) == (1, False)
    assert summary["stopped"].startswith("enough")
    assert (run_dir / "report.html").exists()
    assert answer(run_dir) == answer(ran(tmp_path, scene("MrTF", comm_round=1), "one")), "the answer of its rounds"


def test_a_comparison_takes_a_stopped_run_for_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "scene.yaml", scene("FedAvg", callbacks=[ENOUGH]))
    words = ["compare", "--cf", str(file), "--seeds", "1", "--algorithms", "FedAvg", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert main(words) == 0
    assert "0 of them to be done" in capsys.readouterr().err
