"""`mrtf compare` on real digits: the same setup for all, no run repeated, restart after a kill."""

from __future__ import annotations

import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from mrtf_fedml.cli import main
from tests.conftest import small_config, write_yaml

NAMES = "FedAvg,MrTF:paper"


def words(folder: Path, *more: str, **changes: Any) -> list[str]:
    config = small_config(**{"model": "mlp", "comm_round": 2, "threads": 1, **changes})
    file = write_yaml(folder / "scene.yaml", config)
    return ["compare", "--cf", str(file), "--seeds", "1", "--out", str(folder / "out"), *more]


def lines(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def run_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in (folder / "out" / "runs").glob("*/summary.json"))


def table(folder: Path) -> bytes:
    return (folder / "out" / "table.csv").read_bytes()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    assert main(words(folder, "--algorithms", NAMES, "--jobs", "2", "--target", "0.1")) == 0
    return folder


def test_compare_gives_all_algorithms_the_same_setup(compared: Path) -> None:
    runs = [lines(run_dir) for run_dir in run_dirs(compared)]
    assert len(runs) == 2
    assert len({json.dumps([line["clients"] for line in run]) for run in runs}) == 1
    assert len({run[0]["train_loss"] for run in runs}) == 1, "the same split and initial weights: the same first loss"
    names = {path.name for path in (compared / "out").iterdir()}
    assert names == {"runs", "table.csv", "table.md", "curves.png", "comparison.html"}
    assert "MrTF:paper" in (compared / "out" / "comparison.html").read_text()


def test_finished_runs_are_not_repeated(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {run_dir: (run_dir / "summary.json").stat().st_mtime_ns for run_dir in run_dirs(compared)}
    first = table(compared)
    assert main(words(compared, "--algorithms", NAMES, "--target", "0.1")) == 0
    captured = capsys.readouterr()
    assert "2 runs, 0 of them to be done" in captured.err
    assert "rounds to 0.1" in captured.out
    assert {run_dir: (run_dir / "summary.json").stat().st_mtime_ns for run_dir in run_dirs(compared)} == before
    assert table(compared) == first


@pytest.mark.slow
def test_compare_with_grid_shows_the_best_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--algorithms", "FedAvg", "--grid", "learning_rate=0.1,0.0001", "--jobs", "2", "--seeds", "2"]
    assert main(words(tmp_path, *more, comm_round=1, epochs=3)) == 0
    output = capsys.readouterr().out
    assert "learning_rate=0.1" in output, "the other rate learns nothing in one round"
    assert "0.0001" not in output
    assert "chose it" in output
    (row,) = csv.DictReader((tmp_path / "out" / "table.csv").open())
    runs = {run_dir: json.loads((run_dir / "summary.json").read_text())["accuracy"] for run_dir in run_dirs(tmp_path)}
    assert len(runs) == 4
    rates = {path: yaml.safe_load((path / "config.yaml").read_text())["train_args"]["learning_rate"] for path in runs}
    best = [accuracy for path, accuracy in runs.items() if rates[path] == 0.1]
    assert float(row["final_mean"]) == pytest.approx(statistics.fmean(best))
    assert float(row["final_std"]) == pytest.approx(statistics.stdev(best))
    assert (row["grid"], row["seeds"]) == ("learning_rate=0.1", "2")


def start(folder: Path, *more: str, **changes: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mrtf_fedml.cli", *words(folder, *more, **changes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(pattern: str, folder: Path) -> None:
    deadline = time.monotonic() + 240
    while not list((folder / "out").glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} came"
        time.sleep(0.05)


@pytest.mark.slow
def test_compare_restarted_after_kill_gives_the_same_table(compared: Path, tmp_path: Path) -> None:
    process = start(tmp_path, "--algorithms", NAMES, "--target", "0.1")
    wait_for("runs/*/summary.json", tmp_path)
    process.kill()
    process.communicate()
    (finished_run,) = run_dirs(tmp_path)[:1]
    stamp = (finished_run / "summary.json").stat().st_mtime_ns
    assert main(words(tmp_path, "--algorithms", NAMES, "--target", "0.1")) == 0
    assert (finished_run / "summary.json").stat().st_mtime_ns == stamp
    assert table(tmp_path) == table(compared)


@pytest.mark.slow
def test_compare_restarted_after_interruption_resumes_the_active_run(tmp_path: Path) -> None:
    process = start(tmp_path, "--algorithms", "FedAvg", comm_round=80)
    wait_for("runs/*/state/server.safetensors", tmp_path)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    (run_dir,) = run_dirs(tmp_path)
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["interrupted"]
    done = summary["rounds"]
    started = run_dir / "config.yaml"
    stamp = started.stat().st_mtime_ns
    assert main(words(tmp_path, "--algorithms", "FedAvg", comm_round=80)) == 0
    assert started.stat().st_mtime_ns == stamp, "the run was resumed, not begun anew"
    assert len(lines(run_dir)) == 80 > done


def test_compare_writes_missing_predictions_without_repeating_rounds(compared: Path) -> None:
    (run_dir, *_), first = run_dirs(compared), table(compared)
    rounds = (run_dir / "metrics.jsonl").read_bytes()
    for name in ("summary.json", "report.html", "state/results.json"):
        (run_dir / name).unlink()
    assert main(words(compared, "--algorithms", NAMES, "--target", "0.1")) == 0
    assert (run_dir / "metrics.jsonl").read_bytes() == rounds, "its times too are those of the first time"
    assert (run_dir / "report.html").exists()
    assert table(compared) == first


def test_compare_reports_why_a_run_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(tmp_path, "--algorithms", "FedAvg", model="no_such_model")) == 2
    errors = capsys.readouterr().err
    assert "FedAvg, seed 3 failed" in errors
    assert "no_such_model" in errors


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--jobs", "0"], "--jobs is 0"),
        (["--target", "80"], "between 0 and 1"),
        (["--ablation", "--algorithms", "FedAvg"], "leave --algorithms out"),
        (["--algorithms", "FedSomething"], "FedSomething"),
        (["--vary", "broadcast"], "--vary takes key=value,value, not 'broadcast'"),
    ],
)
def test_compare_rejects_wrong_options_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert main(words(tmp_path, *more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_compare_ablation_writes_bars(tmp_path: Path) -> None:
    jobs = str(min(2, len(os.sched_getaffinity(0))))
    assert main(words(tmp_path, "--ablation", "--jobs", jobs, comm_round=1, cluster_warmup=0)) == 0
    rows = (tmp_path / "out" / "table.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["PA", "AL", "ST", "ST+RD", "ST+RD+CLR"]
    assert (tmp_path / "out" / "bars.png").read_bytes().startswith(b"\x89PNG")
