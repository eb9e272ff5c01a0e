"""Next-character models that predict at every position, through FedMLRunner and whole runs."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedml.model.nlp.rnn import RNN_FedShakespeare
from fedml.runner import FedMLRunner
from torch import Tensor, nn

import mrtf_fedml
from mrtf_fedml.fedml_bridge.fedml_init import initialize
from mrtf_fedml.rng import fork_rng
from mrtf_fedml.training.run_directory import RunDirectory
from tests.conftest import write_yaml
from tests.fedml_bridge.fedml_project import fedml_arguments

from .small_federation import SERVER_SAMPLES, config, eight, one_round

LENGTH, LETTERS = 7, 11


class Reader(nn.Module):
    """A GRU that says at each position which letter comes next: [N, T] -> [N, C, T]."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 6)
        self.gru = nn.GRU(6, 8, batch_first=True)
        self.out = nn.Linear(8, LETTERS)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.gru(self.letters(inputs))[0]).transpose(1, 2)


def run(folder: Path, dataset: list[Any], model: nn.Module | None = None, **changes: Any) -> Path:
    """A project's own FedMLRunner."""
    folder.mkdir(exist_ok=True)
    sections = config(folder / "run", **{"comm_round": 2, "refine_steps": 3, "refine_batch_size": 2, **changes})
    args = initialize(fedml_arguments(write_yaml(folder / "fedml_config.yaml", sections)))
    if model is None:
        with fork_rng(0, "reader"):
            model = Reader()
    mrtf_fedml.register()
    try:
        FedMLRunner(args, torch.device("cpu"), dataset, model).run()
    finally:
        mrtf_fedml.unregister()
    return folder / "run"


def sentences() -> list[Any]:
    return eight((LENGTH,), LETTERS, vocabulary=LETTERS, positions=True)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("positions"), sentences())


def test_each_position_has_its_own_row_and_id(finished_run: Path) -> None:
    rows = list(csv.DictReader((finished_run / "predictions.csv").open()))
    expected = [f"{n}:{t}" for n in range(SERVER_SAMPLES) for t in range(LENGTH)]
    assert [row["id"] for row in rows] == expected
    assert [int(row["index"]) for row in rows] == list(range(SERVER_SAMPLES * LENGTH))
    assert np.load(finished_run / "probabilities.npy").shape == (SERVER_SAMPLES * LENGTH, LETTERS)
    assert json.loads((finished_run / "summary.json").read_text())["samples_labelled"] == SERVER_SAMPLES * LENGTH
    assert (finished_run / "report.html").stat().st_size > 0


def test_rows_equal_the_models_predictions_at_their_positions(finished_run: Path) -> None:
    model = Reader()
    model.load_state_dict(RunDirectory.open(finished_run).load_state().prediction_weights)
    inputs = sentences()[3][0][0]
    with torch.no_grad():
        expected = model.eval()(inputs).softmax(1)
    given = torch.from_numpy(np.load(finished_run / "probabilities.npy")).reshape(SERVER_SAMPLES, LENGTH, LETTERS)
    torch.testing.assert_close(given, expected.transpose(1, 2))


def test_each_position_is_evaluated(finished_run: Path) -> None:
    labels = sentences()[3][0][1].flatten().numpy()
    predictions = np.load(finished_run / "probabilities.npy").argmax(1)
    lines = [json.loads(line) for line in (finished_run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["acc"] == pytest.approx((labels == predictions).mean())
    assert None not in [lines[-1][key] for key in ("acc_aggregated", "acc_ensemble", "acc_targets", "acc_refined")]


def test_other_true_labels_change_only_the_scores(tmp_path: Path, finished_run: Path) -> None:
    permuted, none = sentences(), sentences()
    inputs, labels = permuted[3][0]
    permuted[3] = [(inputs, (labels + 3) % LETTERS)]
    none[3] = [(inputs, torch.full_like(labels, -1))]
    for name, dataset in (("permuted", permuted), ("none", none)):
        other = run(tmp_path / name, dataset)
        for file in ("predictions.csv", "probabilities.npy", "model.safetensors"):
            assert (other / file).read_bytes() == (finished_run / file).read_bytes(), (name, file)
    assert json.loads((tmp_path / "none" / "run" / "summary.json").read_text())["accuracy"] is None


def test_labels_of_other_count_are_not_evaluated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = sentences()
    inputs, labels = dataset[3][0]
    dataset[3] = [(inputs, labels[:, -1])]
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        run_dir = run(tmp_path, dataset, comm_round=1)
    assert "the model gives 42 predictions" in caplog.text
    assert json.loads((run_dir / "summary.json").read_text())["accuracy"] is None


@pytest.mark.parametrize("preset", ["paper", "tuned"])
def test_fedml_next_character_model_runs_with_each_preset(tmp_path: Path, preset: str) -> None:
    """It has 90 outputs; the data's 11 letters are the first of them."""
    changes = {"comm_round": 1, "refine_steps": 1, "preset": preset}
    run_dir = run(tmp_path, sentences(), RNN_FedShakespeare(), **changes)
    assert np.load(run_dir / "probabilities.npy").shape == (SERVER_SAMPLES * LENGTH, LETTERS)


def test_next_character_model_by_name_runs(tmp_path: Path) -> None:
    run_dir = one_round(tmp_path / "run", sentences(), model="rnn_fed_shakespeare", cluster_warmup=0)
    assert np.load(run_dir / "probabilities.npy").shape == (SERVER_SAMPLES * LENGTH, LETTERS)
