"""The lines that a terminal shows when a run has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrtf_fedml.rounds.ending import ending
from tests.report.runs import NOT_SCORED, line, write_run


def test_without_true_labels_the_clients_estimate_stands_in(tmp_path: Path) -> None:
    estimate: dict[str, Any] = {"estimated_accuracy": 0.7812, "estimated_error": 0.0189}
    store, _ = write_run(tmp_path / "run", metrics=[line(0, **NOT_SCORED)], labelled=False, base="FedAvg", **estimate)
    told = ending(store)
    assert "MrTF (tuned)" in told
    assert "not known: the server's set came without labels" in told
    assert "0.78 ± 0.02 (by the clients, on samples of their own)" in told
    other = "samples of their own, which differ from yours"
    store, _ = write_run(
        tmp_path / "other", labelled=False, base="FedAvg", estimated_on=other, notes=["so"], **estimate
    )
    assert f"0.78 ± 0.02 (by the clients, on {other})" in ending(store)
    assert "note              so" in ending(store)


def test_where_nobody_judges_nothing_is_estimated(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run", base="Scaffold", estimated_accuracy=None)
    told = ending(store)
    assert "MrTF (tuned, on Scaffold)" in told
    assert "before refining" in told
    assert "estimated" not in told
