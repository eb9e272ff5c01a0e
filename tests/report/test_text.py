"""Headline, summary, warnings and resumes of a run as sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.data.evaluator import SealedEvaluator
from mrtf_fedml.report import write_report
from mrtf_fedml.report.page import page
from mrtf_fedml.report.run_data import RunData, read_run
from mrtf_fedml.report.text import (
    describe_exclusions,
    describe_resumes,
    headline,
    key_numbers,
    list_warnings,
    summary_rows,
)

from .runs import NOT_SCORED, add_everything, line, write_run


@pytest.fixture
def data(tmp_path: Path) -> RunData:
    """Four samples, all called class 1; the true classes are 1, 1, 1, 0."""
    directory, _ = write_run(tmp_path / "run", samples=4, classes=2)
    directory.write_predictions(torch.tensor([[0.0, 2.0]] * 4), list("abcd"), ["no", "yes"])
    return read_run(directory, None, SealedEvaluator(torch.tensor([1, 1, 1, 0]), ["no", "yes"]))


def test_headline_compares_with_the_aggregated_model(data: RunData) -> None:
    assert headline(data) == ("MrTF labelled 4 samples of digits. Accuracy: 0.75 (aggregated model: 0.46).")
    assert ("0.75", "accuracy") in key_numbers(data)


def test_headline_without_refined_model(tmp_path: Path) -> None:
    metrics = [line(0, acc=0.5, acc_aggregated=0.5, acc_ensemble=None, acc_refined=None)]
    directory, _ = write_run(tmp_path / "run", samples=2, classes=2, metrics=metrics, algorithm="FedAvg")
    directory.write_predictions(torch.eye(2), ["a", "b"], ["no", "yes"])
    text = headline(read_run(directory, None, SealedEvaluator(torch.tensor([0, 0]), ["no", "yes"])))
    assert text == "FedAvg labelled 2 samples of digits. Accuracy: 0.50."


def test_headline_counts_only_labelled_samples(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run", samples=3, classes=2, metrics=[])
    directory.write_predictions(torch.eye(2)[[0, 1, 1]], list("abc"), ["no", "yes"])
    text = headline(read_run(directory, None, SealedEvaluator(torch.tensor([0, 0, -1]), ["no", "yes"])))
    assert "Accuracy on the 2 samples with a true label: 0.50" in text


def test_headline_without_labels_has_the_estimate(tmp_path: Path) -> None:
    estimate: dict[str, Any] = {"estimated_accuracy": 0.7812, "estimated_accuracy_interval": [0.701, 0.842]}
    note = "refining may not help here"
    metrics = [line(0, **NOT_SCORED)]
    directory, _ = write_run(tmp_path / "run", metrics=metrics, labelled=False, notes=[note], **estimate)
    data = read_run(directory, None, None)
    assert "held-out samples: 0.78 (95% interval 0.70 to 0.84). The true labels are not known." in headline(data)
    assert ("0.78", "estimated accuracy, 95% interval 0.70 to 0.84") in key_numbers(data)
    assert f"<p>{note.capitalize()}.</p>" in write_report(directory, None, None).read_text(encoding="utf-8")


def test_first_screen_counts_labels_to_accept_and_names_the_basis_of_the_estimate(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {
        "estimated_accuracy": 0.6,
        "estimated_accuracy_interval": [0.4, 0.8],
        "validation_clients": 0,
        "labels_random": 20,
        "acceptable": {"0.99": 3, "0.95": 1200, "0.9": 1300},
    }
    directory, _ = write_run(tmp_path / "run", metrics=[line(0, **NOT_SCORED)], labelled=False, **numbers)
    data = read_run(directory, None, None)
    assert "estimated on 20 given labels: 0.60" in headline(data)
    (label,) = (label for number, label in key_numbers(data) if number == "1,200")
    assert "95% or more (99%: 3, 90%: 1,300)" in label
    page = write_report(directory, None, None).read_text(encoding="utf-8")
    assert "(99%: 3, 90%: 1,300)" in page
    assert "Looks fine" in page


def test_first_screen_without_an_estimate_does_not_look_fine(tmp_path: Path) -> None:
    withheld: dict[str, Any] = {"estimated_accuracy": None, "no_estimate_because": "the samples differ"}
    directory, _ = write_run(tmp_path / "run", metrics=[line(0, **NOT_SCORED)], labelled=False, **withheld)
    page = write_report(directory, torch.rand(40, 1, 8, 8), None).read_text(encoding="utf-8")
    assert "Looks fine" not in page
    assert "mrtf ask RUN_DIR --n 40 --random" in page
    first = page.index("Check these first")
    assert 0 < page.index("data:image/png", first) - first < 1000, "with thumbnails"


def test_withheld_estimate_is_shown_with_its_reason(tmp_path: Path) -> None:
    reason = "the server's samples differ from the clients'"
    withheld: dict[str, Any] = {"estimated_accuracy": None, "no_estimate_because": reason}
    directory, _ = write_run(tmp_path / "run", metrics=[line(0, **NOT_SCORED)], labelled=False, **withheld)
    data = read_run(directory, None, None)
    assert f"Accuracy: unknown (no estimate: {reason})." in headline(data)
    assert "confidence" not in headline(data), "a mean confidence would be read as an accuracy"
    assert ("unknown", "accuracy") in key_numbers(data)
    assert dict(summary_rows(data))["no estimated accuracy, because"] == reason


def test_headline_of_an_interrupted_run(tmp_path: Path) -> None:
    metrics = [line(0, **NOT_SCORED)]
    directory, _ = write_run(
        tmp_path / "run",
        samples=1,
        metrics=metrics,
        labelled=False,
        interrupted=True,
        rounds=1,
        rounds_requested=20,
    )
    text = headline(read_run(directory, None, None))
    assert text.startswith("MrTF labelled 1 sample of digits")
    assert text.endswith("The run was interrupted after 1 of 20 rounds.")


def test_headline_of_a_stopped_run_has_the_reason(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run", stop_reason="the budget is spent", rounds=3, rounds_requested=20)
    text = headline(read_run(directory, None, None))
    assert text.endswith("The run was stopped after 3 of 20 rounds: the budget is spent.")


def test_headline_of_an_unfinished_run(tmp_path: Path) -> None:
    config = {"data_args": {"dataset": "npz"}, "train_args": {"federated_optimizer": "mrtf:FedAvg"}}
    directory, _ = write_run(tmp_path / "run", ended=False, metrics=[line(0)], config=config)
    text = headline(read_run(directory, None, None))
    assert text.startswith("FedAvg has completed 1 round on npz and has not ended")


def test_summary_rows_format_booleans_and_missing_values(data: RunData, tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "other", labelled=False, preset=None, interrupted=True)
    rows = dict(summary_rows(read_run(directory, None, None)))
    assert rows["interrupted"] == "yes"
    assert rows["accuracy"] == "not known"
    assert rows["computing time"] == "9.0 s"
    assert "preset" not in rows
    assert "confusion" not in dict(summary_rows(data))


def test_recall_of_class_without_samples_is_nan(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run", samples=2, classes=3)
    directory.write_predictions(torch.eye(3)[:2], ["a", "b"], ["x", "y", "z"])
    examined = read_run(directory, None, SealedEvaluator(torch.tensor([0, 0]), ["x", "y", "z"])).evaluation
    assert examined is not None
    assert examined.recall[0] == 0.5
    assert torch.from_numpy(examined.recall).isnan().tolist() == [False, True, True]


def test_describe_exclusions_counts_clients_without_reasons() -> None:
    assert describe_exclusions([line(0)]) == []
    text = describe_exclusions([line(0), line(1, excluded_clients=[3, 4]), line(4, excluded_clients=[3])])
    assert text == ["3 client updates were excluded (rounds 2 and 5): its numbers are not finite."]


def test_describe_exclusions_groups_by_reason() -> None:
    late, bad = "no answer within 60 s", "weights of another shape."
    text = describe_exclusions(
        [
            line(0, excluded_clients={"3": late}),
            line(1, excluded_clients={}),
            line(2, excluded_clients={"3": late, "5": bad}),
        ]
    )
    assert text == [
        "2 client updates were excluded (rounds 1 and 3): no answer within 60 s.",
        "1 client update was excluded (round 3): weights of another shape.",
    ]


def test_describe_exclusions_counts_many_rounds() -> None:
    (text,) = describe_exclusions([line(number, excluded_clients=[1]) for number in range(2, 40)])
    assert text.startswith("38 client updates were excluded (in 38 rounds, first in round 3)")


def test_list_warnings_starts_with_warnings_of_the_run(tmp_path: Path) -> None:
    directory, _ = write_run(
        tmp_path / "run", metrics=[line(0, excluded_clients=[1])], warnings=["Half a class is missing."]
    )
    text = list_warnings(read_run(directory, None, None))
    assert text[0] == "Half a class is missing."
    assert "excluded" in text[1]


def test_list_warnings_names_the_owners_of_clients(tmp_path: Path) -> None:
    metrics = [line(0, outlier_clients={"1": "4 times the median"})]
    directory, _ = write_run(tmp_path / "run", metrics=metrics, labelled=False)
    split = {"counts": [[3, 1], [0, 2]], "class_names": ["a", "b"], "client_names": ["North", "East"]}
    directory.write_json("split.json", split)
    data = read_run(directory, None, None)
    assert any(sentence.startswith("Client 1 (East) sent") for sentence in list_warnings(data))
    text = page(data, None)
    assert "North (0)" in text
    assert "<td>3</td>" in text


def test_describe_resumes_lists_changed_settings(tmp_path: Path) -> None:
    directory, _ = write_run(tmp_path / "run")
    assert describe_resumes(read_run(directory, None, None)) == []
    add_everything(directory)
    assert describe_resumes(read_run(directory, None, None)) == [
        "The run was stopped after round 1 and resumed with other settings: train_args.learning_rate = 0.05 (was 0.1).",
        "The run was stopped after round 2 and resumed with the same settings.",
    ]
