"""A run's folder: whole files or none, and a state that comes back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mrtf_fedml.algorithms import ServerState
from mrtf_fedml.errors import UserError
from mrtf_fedml.rounds.store import RunStore


def store(tmp_path: Path) -> RunStore:
    made = RunStore.create(tmp_path / "run", "unused")
    made.write_config({"train_args": {"epochs": 1}})
    return made


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    run = store(tmp_path)
    weights = {"w": torch.randn(3, 2), "count": torch.tensor(7), "a": torch.zeros(1)}
    answer = {"w": torch.randn(3, 2), "count": torch.tensor(8)}
    memory = {"targets": torch.rand(5, 3), "7/moments": torch.ones(2), "count": 3, "names": ["a", {"b": 0.1}]}
    run.save_state(ServerState(4, weights, answer, memory))
    back = run.load_state()
    assert back is not None
    assert back.round == 4
    assert torch.equal(back.weights["w"], weights["w"])
    assert back.answer["count"].item() == 8
    assert (list(back.weights), list(back.answer), list(back.memory)) == (list(weights), list(answer), list(memory))
    assert torch.equal(back.memory["targets"], memory["targets"])
    assert torch.equal(back.memory["7/moments"], torch.ones(2))
    assert (back.memory["count"], back.memory["names"]) == (3, ["a", {"b": 0.1}])


def test_what_cannot_be_kept_is_named(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(1)}
    for value in ({1, 2}, (1, 2), {1: "a number as key"}, object()):
        with pytest.raises(UserError, match=r"memory 'mine' is a \w+ that cannot be saved"):
            store(tmp_path / type(value).__name__).save_state(ServerState(1, weights, weights, {"mine": value}))


def test_weights_that_are_also_the_answer_are_written_once(tmp_path: Path) -> None:
    run = store(tmp_path)
    weights = {"w": torch.randn(100, 100)}
    run.save_state(ServerState(1, weights, weights))
    assert (run.path / "state" / "server.safetensors").stat().st_size < 45_000
    back = run.load_state()
    assert back is not None
    assert torch.equal(back.answer["w"], weights["w"])
    assert not back.memory


def test_metrics_are_cut_to_the_state_on_loading(tmp_path: Path) -> None:
    run = store(tmp_path)
    weights = {"w": torch.zeros(1)}
    for index in range(3):
        run.append_metrics({"round": index})
        if index < 2:
            run.save_state(ServerState(index + 1, weights, weights))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "cl')  # a kill in the middle of a line
    run.load_state()
    assert run.read_metrics() == [{"round": 0}, {"round": 1}]


def test_a_line_without_its_state_is_cut_too(tmp_path: Path) -> None:
    run = store(tmp_path)
    run.append_metrics({"round": 0})
    assert run.load_state() is None
    assert run.read_metrics() == []


def test_what_a_resume_changes_is_written_down_with_its_round(tmp_path: Path) -> None:
    run = store(tmp_path)
    run.write_resumed_config({"train_args": {"epochs": 1}}, 2)
    assert run.read_resumes() == {}
    run.write_resumed_config({"train_args": {"epochs": 5}, "mrtf_args": {"teacher": "avg_logit"}}, 3)
    run.write_resumed_config({"train_args": {"epochs": 7}, "mrtf_args": {"teacher": "avg_logit"}}, 6)
    assert run.read_config() == {"train_args": {"epochs": 7}, "mrtf_args": {"teacher": "avg_logit"}}
    assert run.read_resumes() == {
        "3": {"train_args.epochs": {"from": 1, "to": 5}, "mrtf_args.teacher": {"from": None, "to": "avg_logit"}},
        "6": {"train_args.epochs": {"from": 5, "to": 7}},
    }


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run = store(tmp_path)
    with pytest.raises(UserError, match="already holds a run"):
        RunStore.create(run.path, "unused")


def test_rounds_without_their_configuration_are_not_taken_for_those_of_a_new_run(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(1)}
    for name in ("metrics", "state"):
        run = store(tmp_path / name)
        if name == "metrics":
            run.append_metrics({"round": 0})
        else:
            run.save_state(ServerState(1, weights, weights))
        (run.path / "config.yaml").unlink()
        with pytest.raises(UserError, match=r"rounds of a run whose config\.yaml is gone"):
            RunStore.create(run.path, "unused")


def test_a_configuration_that_is_no_more_one_is_a_sentence(tmp_path: Path) -> None:
    run = store(tmp_path)
    for content, told in (("", "holds no configuration"), ("- a", "holds no configuration"), ("{", "is not valid")):
        (run.path / "config.yaml").write_text(content)
        with pytest.raises(UserError, match=told):
            run.read_config()


def test_a_broken_line_of_the_metrics_is_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = store(tmp_path)
    (run.path / "metrics.jsonl").write_bytes(b'{"round": 0}\n{"rou\xff\x00\n3\n{"round": 2}\n')
    assert run.read_metrics() == [{"round": 0}, {"round": 2}]
    assert "line 2 of " in caplog.text
    assert "line 3 of " in caplog.text


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        RunStore.create(tmp_path / "file" / "run", "unused")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        RunStore.open(tmp_path)


def test_two_runs_in_the_same_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {RunStore.create(None, "digits-MrTF").path for _ in range(3)}
    assert len(paths) == 3


def test_names_with_commas_and_quotes_survive_in_the_predictions(tmp_path: Path) -> None:
    import csv

    run = store(tmp_path)
    run.write_predictions(torch.tensor([[9.0, 0.0], [0.0, 1.0]]), ['a,"b".png', "ü.png"], ["cat", "dog"])
    with (run.path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ['a,"b".png', "ü.png"]
    assert [row["class_name"] for row in rows] == ["cat", "dog"]
    assert rows[1]["confidence"] == "0.731059"


def test_no_part_is_left_beside_the_files(tmp_path: Path) -> None:
    run = store(tmp_path)
    run.write_json("summary.json", {"a": 1})
    assert not list(run.path.rglob("*.part"))
