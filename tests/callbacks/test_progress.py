"""Progress lines within 80 columns, and the summary at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrtf_fedml.algorithms import MrTF
from mrtf_fedml.callbacks.progress import format_common_metrics, format_round, format_run_summary
from tests.report.runs import NOT_SCORED, line, write_run

ACCURACIES = {f"acc_{name}": 0.5 for name in ("refined", "aggregated", "ensemble", "targets")}
OWN = {f"a_long_measure_{number}": 1.0 for number in range(9)}


def test_format_round_keeps_80_columns_and_starts_with_the_accuracy() -> None:
    metrics = {"round": 4, **ACCURACIES, "train_loss": 12.5, **OWN}
    assert list(format_common_metrics(metrics)) == ["refined", "aggregated", "ensemble", "targets", "loss"]
    lines = format_round(metrics, 1500).splitlines()
    assert lines[0].startswith("round    5/1500  refined 0.500  aggregated 0.500")
    assert max(len(text) for text in lines) <= 80
    assert all(text.startswith(" " * len("round    5/1500  ")) for text in lines[1:])


def test_format_common_metrics_has_the_accuracy_of_the_predictions_first() -> None:
    metrics = {"round": 4, "acc": 0.75, **ACCURACIES}
    assert list(format_common_metrics(metrics).items())[:2] == [("accuracy", "0.750"), ("refined", "0.500")]
    assert "accuracy" not in format_common_metrics({**metrics, "acc": 0.5})


def test_format_round_shows_every_undeclared_metric() -> None:
    metrics = {"round": 0, **ACCURACIES, "estimated_accuracy": 0.4, "train_loss": 1.0, **OWN}
    text = format_round({**metrics, "w" * 90: 2}, 10)
    for word in (*(f"{name} 1.000" for name in OWN), "w" * 90 + " 2"):
        assert word in text


def test_format_round_shows_an_estimate_with_its_error_and_hides_declared_details() -> None:
    estimate = {"estimated_accuracy": 0.9, "estimated_accuracy_stderr": 0.02, "estimated_gain": 0.05}
    text = format_round({"round": 0, **ACCURACIES, **estimate}, 10, MrTF.metrics)
    assert "estimated accuracy 0.90 ± 0.02" in text
    assert "gain" not in text


def test_format_run_summary_without_labels_shows_the_estimate(tmp_path: Path) -> None:
    estimate: dict[str, Any] = {"estimated_accuracy": 0.7812, "estimated_accuracy_interval": [0.7, 0.84]}
    directory, _ = write_run(
        tmp_path / "run", metrics=[line(0, **NOT_SCORED)], labelled=False, base="FedAvg", **estimate
    )
    text = format_run_summary(directory)
    assert "MrTF (tuned)" in text
    assert "unknown: the server's set has no labels" in text
    assert "0.78 (95% interval 0.70 to 0.84)" in text
    assert "decided" not in text
    accepted: dict[str, Any] = {**estimate, "samples_accepted": 31, "accepted_accuracy": 0.964}
    directory, _ = write_run(tmp_path / "accepted", labelled=False, base="FedAvg", **accepted)
    assert "31 labels at an estimated accuracy of 0.96" in format_run_summary(directory)
    withheld: dict[str, Any] = {"estimated_accuracy": None, "no_estimate_because": "the samples differ"}
    directory, _ = write_run(tmp_path / "other", labelled=False, base="FedAvg", notes=["so"], **withheld)
    assert "no estimate: the samples differ" in format_run_summary(directory)
    assert "note              so" in format_run_summary(directory)


def test_format_run_summary_without_estimate_shows_none(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run", base="Scaffold", estimated_accuracy=None)
    text = format_run_summary(directory)
    assert "MrTF (tuned, on Scaffold)" in text
    assert "before refining" in text
    assert "estimated" not in text
