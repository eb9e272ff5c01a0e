"""Early stopping: when a run stops, and that its results are those of a run of so many rounds, also when resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.callbacks.early_stopping import WINDOW, has_stalled
from mrtf_fedml.cli import main
from tests.conftest import output_bytes, small_config, write_yaml

#: Nothing is learnt, and all clients take part: every round has the same estimate.
STALLED: dict[str, Any] = {
    "model": "linear",
    "preset": "tuned",
    "client_num_in_total": 3,
    "learning_rate": 1e-9,
    "refine_lr": 1e-12,
    "refine_steps": 1,
}
#: The first round has no estimate, WINDOW rounds make the first average, and one more brings no improvement.
STOP_AFTER = 1 + WINDOW + 1


def run(folder: Path, name: str, **changes: Any) -> Path:
    config = small_config(**{**STALLED, **changes}, run_dir=str(folder / name))
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return folder / name


def summary(run_dir: Path) -> dict[str, Any]:
    return dict(json.loads((run_dir / "summary.json").read_text()))


def test_has_stalled_ignores_one_bad_round() -> None:
    rising = [0.1 * step for step in range(10)]
    assert not has_stalled([*rising, 0.5], patience=2)
    assert has_stalled([*rising, 0.5, 0.5, 0.5], patience=2)
    assert not has_stalled([0.5] * WINDOW, patience=1), "one average has nothing to be compared with"


def test_run_without_improvement_stops_with_the_bytes_of_so_many_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = run(tmp_path, "stopped", comm_round=20, early_stopping=1)
    printed = capsys.readouterr()
    assert f"stopped after {STOP_AFTER} of 20 rounds" in printed.err
    assert "train_args.early_stopping" in printed.err
    assert (summary(stopped)["rounds"], summary(stopped)["interrupted"]) == (STOP_AFTER, False)
    assert "early_stopping" in summary(stopped)["stop_reason"]
    plain = run(tmp_path, "plain", comm_round=STOP_AFTER)
    assert output_bytes(stopped) == output_bytes(plain)
    assert summary(plain)["stop_reason"] is None


def test_resumed_run_stops_after_the_same_round_with_equal_results(tmp_path: Path) -> None:
    whole = run(tmp_path, "whole", comm_round=20, early_stopping=1)
    resumed = run(tmp_path, "resumed", comm_round=3, early_stopping=1)
    assert main(["run", "--resume", str(resumed), "--set", "comm_round=20"]) == 0
    assert summary(resumed)["rounds"] == STOP_AFTER
    assert output_bytes(resumed) == output_bytes(whole)
    # As if the process had been killed after the checkpoint of the round that stops the run.
    warnings = summary(whole)["warnings"]
    results = [whole / name for name in ("predictions.csv", "model.safetensors", "summary.json", "validation.json")]
    for file in (*results, whole / "state" / "results.json"):
        file.unlink()
    assert main(["run", "--resume", str(whole)]) == 0
    assert summary(whole)["rounds"] == STOP_AFTER
    assert summary(whole)["warnings"] == warnings
    assert output_bytes(whole) == output_bytes(resumed)


def test_run_without_client_validation_runs_all_rounds_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = run(tmp_path, "run", preset="paper", comm_round=3, early_stopping=1)
    assert summary(run_dir)["rounds"] == 3
    printed = capsys.readouterr().err
    assert "early_stopping" in printed
    assert "client_validation" in printed
