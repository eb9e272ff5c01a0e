"""User callbacks: order of calls, stopping a run, and storage of their metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.conftest import read_metrics
from tests.extension.conftest import extension_config, output_bytes, run_config

WATCHING, ENOUGH, ALREADY = (f"tests.extension.watching:{name}" for name in ("Watching", "Enough", "EnoughAlready"))


def test_callback_sees_every_round_and_its_metrics_are_stored(tmp_path: Path) -> None:
    plain = run_config(tmp_path, extension_config("MrTF", comm_round=2), "plain")
    run_dir = run_config(tmp_path, extension_config("MrTF", comm_round=2, callbacks=[WATCHING]))
    assert (run_dir / "watched.txt").read_text() == "start 0 of 2\nround 0\nround 1\nend 2\n"
    assert all(0.1 < line["confidence"] < 1 for line in read_metrics(run_dir))
    assert output_bytes(run_dir) == output_bytes(plain), "who only watches changes nothing"
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=3"]) == 0
    assert (run_dir / "watched.txt").read_text().endswith("end 2\nstart 2 of 3\nround 2\nend 3\n")


@pytest.mark.parametrize("callback", [ENOUGH, ALREADY])
def test_callback_can_stop_the_run(tmp_path: Path, callback: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = run_config(tmp_path, extension_config("MrTF", callbacks=[callback]))
    assert "1 of 3 in" in capsys.readouterr().out
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["rounds"], summary["interrupted"]) == (1, False)
    assert summary["stop_reason"].startswith("enough")
    assert (run_dir / "report.html").exists()
    assert output_bytes(run_dir) == output_bytes(run_config(tmp_path, extension_config("MrTF", comm_round=1), "one")), (
        "the answer of its rounds"
    )
