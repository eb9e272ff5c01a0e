from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.data.examiner import Examiner
from mrtf_fedml.report import write_report
from mrtf_fedml.report.facts import Facts
from mrtf_fedml.report.reading import read_facts
from mrtf_fedml.report.story import (
    headline,
    summary_rows,
    tiles,
)

from .runs import NOT_SCORED, line, write_run


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """Four samples, all called class 1; the true classes are 1, 1, 1, 0."""
    store, _ = write_run(tmp_path / "run", samples=4, classes=2)
    store.write_predictions(torch.tensor([[0.0, 2.0]] * 4), list("abcd"), ["no", "yes"])
    return read_facts(store, None, Examiner(torch.tensor([1, 1, 1, 0]), ["no", "yes"]))


def test_headline_compares_with_the_plain_average(facts: Facts) -> None:
    assert headline(facts) == (
        "MrTF labelled 4 samples of digits it never saw a label of; 0.75 of them right, where the plain average "
        "of the clients' models stood at 0.46."
    )
    assert ("0.75", "accuracy") in tiles(facts)


def test_headline_of_an_algorithm_that_only_averages_compares_nothing(tmp_path: Path) -> None:
    metrics = [line(0, acc=0.5, acc_aggregated=0.5, acc_ensemble=None, acc_refined=None)]
    store, _ = write_run(tmp_path / "run", samples=2, classes=2, metrics=metrics, algorithm="FedAvg")
    store.write_predictions(torch.eye(2), ["a", "b"], ["no", "yes"])
    told = headline(read_facts(store, None, Examiner(torch.tensor([0, 0]), ["no", "yes"])))
    assert told == "FedAvg labelled 2 samples of digits it never saw a label of; 0.50 of them right."


def test_headline_counts_only_samples_with_a_true_label(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run", samples=3, classes=2, metrics=[])
    store.write_predictions(torch.eye(2)[[0, 1, 1]], list("abc"), ["no", "yes"])
    told = headline(read_facts(store, None, Examiner(torch.tensor([0, 0, -1]), ["no", "yes"])))
    assert "of the 2 whose true label is known to the examiner, 0.50 are right" in told


def test_without_true_labels_the_clients_estimate_is_told(tmp_path: Path) -> None:
    estimate: dict[str, Any] = {"estimated_accuracy": 0.7812, "estimated_error": 0.0189}
    store, _ = write_run(tmp_path / "run", metrics=[line(0, **NOT_SCORED)], labelled=False, **estimate)
    told = read_facts(store, None, None)
    assert "how many are right is not known, 0.78 ± 0.02 of them by the clients' own estimate" in headline(told)
    assert ("0.78 ± 0.02", "accuracy, as the clients estimate it") in tiles(told)


def test_an_estimate_on_samples_of_another_kind_is_nowhere_told_without_that(tmp_path: Path) -> None:
    other = "samples of their own, which differ from yours"
    estimate: dict[str, Any] = {"estimated_accuracy": 0.82, "estimated_error": 0.03, "estimated_on": other}
    metrics = [line(number, **NOT_SCORED, estimated_accuracy=0.82) for number in range(2)]
    note = "refining may not help here"
    store, _ = write_run(tmp_path / "run", metrics=metrics, labelled=False, notes=[note], **estimate)
    facts = read_facts(store, None, None)
    assert f"0.82 ± 0.03 of them by the clients' own estimate on {other}" in headline(facts)
    assert ("0.82 ± 0.03", f"accuracy, as the clients estimate it on {other}") in tiles(facts)
    assert dict(summary_rows(facts))["the clients estimate it on"] == other
    page = write_report(store, None, None).read_text(encoding="utf-8")
    assert f"What the clients estimate is of {other}." in page
    assert f"<p>{note}.</p>" in page


def test_headline_of_one_sample_of_an_interrupted_run(tmp_path: Path) -> None:
    metrics = [line(0, **NOT_SCORED)]
    store, _ = write_run(
        tmp_path / "run",
        samples=1,
        metrics=metrics,
        labelled=False,
        interrupted=True,
        rounds=1,
        rounds_asked_for=20,
    )
    told = headline(read_facts(store, None, None))
    assert told.startswith("MrTF labelled 1 sample of digits")
    assert told.endswith("The run was interrupted after 1 of 20 rounds.")


def test_headline_of_a_run_that_stopped_by_itself_tells_why(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run", stopped="the budget is spent", rounds=3, rounds_asked_for=20)
    told = headline(read_facts(store, None, None))
    assert told.endswith("The run was stopped after 3 of 20 rounds: the budget is spent.")


def test_headline_of_a_run_that_never_came_to_its_end(tmp_path: Path) -> None:
    config = {"data_args": {"dataset": "npz"}, "train_args": {"federated_optimizer": "mrtf:FedAvg"}}
    store, _ = write_run(tmp_path / "run", ended=False, metrics=[line(0)], config=config)
    told = headline(read_facts(store, None, None))
    assert told.startswith("FedAvg has done 1 round on npz and has not come to its end")


def test_summary_rows_say_yes_no_and_not_known(facts: Facts, tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "other", labelled=False, preset=None, interrupted=True)
    rows = dict(summary_rows(read_facts(store, None, None)))
    assert rows["interrupted"] == "yes"
    assert rows["accuracy"] == "not known"
    assert rows["time spent computing"] == "9.0 s"
    assert "preset of settings" not in rows
    assert "confusion" not in dict(summary_rows(facts))


def test_recall_is_unknown_for_a_class_without_samples(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run", samples=2, classes=3)
    store.write_predictions(torch.eye(3)[:2], ["a", "b"], ["x", "y", "z"])
    examined = read_facts(store, None, Examiner(torch.tensor([0, 0]), ["x", "y", "z"])).examination
    assert examined is not None
    assert examined.recall[0] == 0.5
    assert torch.from_numpy(examined.recall).isnan().tolist() == [False, True, True]
