from __future__ import annotations

from pathlib import Path

from mrtf_fedml.report.events import left_out, resumed, warnings_of
from mrtf_fedml.report.reading import read_facts

from .runs import add_everything, line, write_run


def test_clients_left_out_are_told_of() -> None:
    assert left_out([line(0)]) == []
    told = left_out([line(0), line(1, left_out=[3, 4]), line(4, left_out=[3])])
    assert told == ["3 updates of clients were left out (rounds 2 and 5): numbers that were not finite."]


def test_the_true_reasons_are_told_where_they_are_known() -> None:
    late, bad = "no answer within 60 s", "weights of another shape."
    told = left_out([line(0, left_out={"3": late}), line(1, left_out={}), line(2, left_out={"3": late, "5": bad})])
    assert told == [
        "2 updates of clients were left out (rounds 1 and 3): no answer within 60 s.",
        "1 update of clients was left out (round 3): weights of another shape.",
    ]


def test_many_rounds_are_counted() -> None:
    (told,) = left_out([line(number, left_out=[1]) for number in range(2, 40)])
    assert told.startswith("38 updates of clients were left out (in 38 rounds, first in round 3)")


def test_the_runs_own_warnings_come_first(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run", metrics=[line(0, left_out=[1])], warnings=["Half a class is missing."])
    told = warnings_of(read_facts(store, None, None))
    assert told[0] == "Half a class is missing."
    assert "left out" in told[1]


def test_what_a_resume_changed_is_told_in_words(tmp_path: Path) -> None:
    store, _ = write_run(tmp_path / "run")
    assert resumed(read_facts(store, None, None)) == []
    add_everything(store)
    assert resumed(read_facts(store, None, None)) == [
        "The run was stopped after round 1 and resumed with other settings: train_args.learning_rate became 0.05 "
        "(was 0.1).",
        "The run was stopped after round 2 and resumed with the same settings.",
    ]
