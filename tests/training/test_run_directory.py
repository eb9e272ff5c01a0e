"""The run directory: atomic files, checkpoints, configuration, metrics and data files."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
import torch

from mrtf_fedml.algorithms import ServerState
from mrtf_fedml.algorithms.evaluation import EvaluationCounts
from mrtf_fedml.algorithms.input_cells import InputCells
from mrtf_fedml.config import DataSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.report.run_data import read_run
from mrtf_fedml.training.run_directory import RunDirectory


def directory(tmp_path: Path) -> RunDirectory:
    created = RunDirectory.create(tmp_path / "run", "unused")
    created.write_config({"train_args": {"epochs": 1}})
    return created


def test_load_state_returns_the_saved_state(tmp_path: Path) -> None:
    run = directory(tmp_path)
    weights = {"w": torch.randn(3, 2), "count": torch.tensor(7), "a": torch.zeros(1)}
    prediction_weights = {"w": torch.randn(3, 2), "count": torch.tensor(8)}
    memory = {"targets": torch.rand(5, 3), "7/moments": torch.ones(2), "count": 3, "names": ["a", {"b": 0.1}]}
    run.save_state(ServerState(4, weights, prediction_weights, memory))
    loaded = run.load_state()
    assert loaded is not None
    assert loaded.round == 4
    assert torch.equal(loaded.weights["w"], weights["w"])
    assert loaded.prediction_weights["count"].item() == 8
    assert (list(loaded.weights), list(loaded.prediction_weights), list(loaded.memory)) == (
        list(weights),
        list(prediction_weights),
        list(memory),
    )
    assert torch.equal(loaded.memory["targets"], memory["targets"])
    assert torch.equal(loaded.memory["7/moments"], torch.ones(2))
    assert (loaded.memory["count"], loaded.memory["names"]) == (3, ["a", {"b": 0.1}])


def test_save_state_names_memory_that_cannot_be_saved(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(1)}
    for value in ({1, 2}, (1, 2), {1: "a number as key"}, object()):
        with pytest.raises(UserError, match=r"memory 'mine' is a \w+ that cannot be saved"):
            directory(tmp_path / type(value).__name__).save_state(ServerState(1, weights, weights, {"mine": value}))


def test_save_state_writes_shared_weights_once(tmp_path: Path) -> None:
    run = directory(tmp_path)
    weights = {"w": torch.randn(100, 100)}
    run.save_state(ServerState(1, weights, weights))
    assert (run.path / "state" / "server.safetensors").stat().st_size < 45_000
    loaded = run.load_state()
    assert loaded is not None
    assert torch.equal(loaded.prediction_weights["w"], weights["w"])
    assert not loaded.memory


def test_load_state_removes_metrics_of_unfinished_rounds(tmp_path: Path) -> None:
    run = directory(tmp_path)
    weights = {"w": torch.zeros(1)}
    for index in range(3):
        run.append_metrics({"round": index})
        if index < 2:
            run.save_state(ServerState(index + 1, weights, weights))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "cl')  # a kill in the middle of a line
    run.load_state()
    assert run.read_metrics() == [{"round": 0}, {"round": 1}]


def test_load_state_without_checkpoint_removes_all_metrics(tmp_path: Path) -> None:
    run = directory(tmp_path)
    run.append_metrics({"round": 0})
    assert run.load_state() is None
    assert run.read_metrics() == []


def test_write_resumed_config_records_changes_by_round(tmp_path: Path) -> None:
    run = directory(tmp_path)
    run.write_resumed_config({"train_args": {"epochs": 1}}, 2)
    assert run.read_resumes() == {}
    run.write_resumed_config({"train_args": {"epochs": 5}, "mrtf_args": {"teacher": "avg_logit"}}, 3)
    run.write_resumed_config({"train_args": {"epochs": 7}, "mrtf_args": {"teacher": "avg_logit"}}, 6)
    assert run.read_config() == {"train_args": {"epochs": 7}, "mrtf_args": {"teacher": "avg_logit"}}
    assert run.read_resumes() == {
        "3": {"train_args.epochs": {"from": 1, "to": 5}, "mrtf_args.teacher": {"from": None, "to": "avg_logit"}},
        "6": {"train_args.epochs": {"from": 5, "to": 7}},
    }


def test_create_refuses_a_directory_with_a_run(tmp_path: Path) -> None:
    run = directory(tmp_path)
    with pytest.raises(UserError, match="already has a run"):
        RunDirectory.create(run.path, "unused")


def test_create_refuses_rounds_without_config(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(1)}
    for name in ("metrics", "state"):
        run = directory(tmp_path / name)
        if name == "metrics":
            run.append_metrics({"round": 0})
        else:
            run.save_state(ServerState(1, weights, weights))
        (run.path / "config.yaml").unlink()
        with pytest.raises(UserError, match=r"rounds of a run whose config\.yaml is missing"):
            RunDirectory.create(run.path, "unused")


def test_read_config_of_a_damaged_file_is_a_user_error(tmp_path: Path) -> None:
    run = directory(tmp_path)
    for content, fault in (("", "has no configuration"), ("- a", "has no configuration"), ("{", "is not valid")):
        (run.path / "config.yaml").write_text(content)
        with pytest.raises(UserError, match=fault):
            run.read_config()


def test_read_metrics_ignores_and_names_damaged_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = directory(tmp_path)
    (run.path / "metrics.jsonl").write_bytes(b'{"round": 0}\n{"rou\xff\x00\n3\n{"round": 2}\n')
    assert run.read_metrics() == [{"round": 0}, {"round": 2}]
    assert "line 2 of " in caplog.text
    assert "line 3 of " in caplog.text


def test_create_names_a_path_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be created"):
        RunDirectory.create(tmp_path / "file" / "run", "unused")


def test_open_refuses_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        RunDirectory.open(tmp_path)


def test_create_twice_in_a_second_gives_two_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {RunDirectory.create(None, "digits-MrTF").path for _ in range(3)}
    assert len(paths) == 3


def test_write_predictions_keeps_ids_with_commas_and_quotes(tmp_path: Path) -> None:
    run = directory(tmp_path)
    run.write_predictions(torch.tensor([[9.0, 0.0], [0.0, 1.0]]), ['a,"b".png', "ü.png"], ["cat", "dog"])
    with (run.path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ['a,"b".png', "ü.png"]
    assert [row["class_name"] for row in rows] == ["cat", "dog"]
    assert rows[1]["confidence"] == "0.731059"


def test_write_predictions_escapes_formulas_and_the_report_reads_them_back(tmp_path: Path) -> None:
    run, ids, names = directory(tmp_path), ["=1+1", "@a", "-2"], ["=HYPERLINK(1)", "+b"]
    run.write_predictions(torch.tensor([[9.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), ids, names)
    cells = (run.path / "predictions.csv").read_text().replace("\n", ",").split(",")
    assert [cell for cell in cells if cell.startswith(tuple("=+-@"))] == ["-2"]
    predictions = read_run(run, None, None).predictions
    assert predictions is not None
    assert (predictions.ids, predictions.class_names) == (ids, names)


def test_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    run = directory(tmp_path)
    run.write_json("summary.json", {"a": 1})
    assert not list(run.path.rglob("*.part"))


def test_check_inputs_names_changed_files_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, own_file = tmp_path / "images", tmp_path / "own-0.npz"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"one")
    own_file.write_bytes(b"two")
    data = DataSettings(data_file=str(folder), own_data_file=str(tmp_path / "own-{rank}.npz"))
    run = directory(tmp_path)
    # A run may have been started before fingerprints were recorded.
    run.check_inputs(data, samples=5)
    run.record_inputs(data, samples=5)
    run.check_inputs(data, samples=5)
    assert caplog.text == ""
    os.utime(own_file, ns=(1, 1))
    run.check_inputs(data, samples=5)
    assert "own-{rank}.npz has changed" in caplog.text
    assert "images has changed" not in caplog.text
    (folder / "b.png").write_bytes(b"three")
    run.check_inputs(data, samples=5)
    assert "images has changed" in caplog.text


def test_check_inputs_refuses_a_server_set_of_another_size(tmp_path: Path) -> None:
    run = directory(tmp_path)
    run.record_inputs(DataSettings(), samples=5)
    with pytest.raises(UserError, match="server_samples"):
        run.check_inputs(DataSettings(), samples=6)


def test_saved_evaluations_are_read_again_and_damaged_ones_are_not(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path / "run"), "test")
    cells = InputCells.fit(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), classes=2)
    counts = EvaluationCounts.zeros(2, cells)
    counts.confusion[0, 1] = counts.confidence[1, 0, 7] = counts.true_class[3] = 5
    counts.cells[:, 0, 2] = counts.features[:, 0, 1] = 9
    # The second client has no samples.
    directory.write_evaluations(3, {4: counts, 5: EvaluationCounts.zeros(2, cells)})
    read = directory.read_evaluations(3)
    assert read is not None
    assert {client: each.to_json() for client, each in read.items()} == {
        4: counts.to_json(),
        5: EvaluationCounts.zeros(2, cells).to_json(),
    }
    assert directory.read_evaluations(2) is None, "of another round"
    file = directory.path / "validation.json"
    file.write_text(file.read_text().replace('"index": [3]', '"index": [3000]'))
    assert directory.read_evaluations(3) is None
