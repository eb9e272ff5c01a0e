"""`mrtf_fedml.label`: arrays in, labels out, in a program of the user's own."""

from __future__ import annotations

import logging
import random
import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mrtf_fedml
from mrtf_fedml import Result
from mrtf_fedml.cli import main
from tests.api.client_arrays import QUICK, SERVER, TEXTS, X, Y, clients


@pytest.fixture(scope="module")
def result() -> Result:
    return mrtf_fedml.label(X[SERVER], clients(), rounds=8, y_server=TEXTS[SERVER], **QUICK)


def test_label_returns_string_labels_and_all_results(result: Result) -> None:
    assert set(result.labels) == {"low", "high"}
    assert len(result.labels) == 30
    assert result.classes.tolist() == ["high", "low"]
    assert (result.classes[result.probabilities.argmax(axis=1)] == result.labels).all()
    assert result.accuracy == np.mean(result.labels == TEXTS[SERVER]) > 0.8
    assert result.metrics.index.tolist() == list(range(8))
    assert result.metrics["acc"].iloc[-1] == result.accuracy
    assert "<html" in result.report.html
    assert "<iframe" in result.report._repr_html_()
    assert result.summary["preset"] == "tuned", "own data get what our measurements support"
    assert result.warnings == []
    assert result.run_dir is None
    assert repr(result).startswith("30 samples labelled in 2 classes by MrTF, 8 of 8 rounds\naccuracy ")
    trust = ["probability_correct", "prediction_set", "decision"]
    assert result.table().columns.tolist() == ["id", "label", "confidence", *trust]


@pytest.mark.parametrize("missing", [None, np.nan, -1])
def test_label_gives_known_labels_back_and_learns_them(missing: object) -> None:
    given = [int(value) for value in Y[SERVER][:3]]
    given[0] = 1 - given[0]
    partial = [*given, *[missing] * 27]
    own = [(x, y) for x, y in clients(Y)]
    result = mrtf_fedml.label(X[SERVER], own, rounds=1, y_server=partial, **QUICK)
    assert result.labels[:3].tolist() == given
    assert result.probabilities[:3].max(axis=1).tolist() == [1.0] * 3
    assert result.table()["probability_correct"][:3].tolist() == [1.0] * 3
    assert result.accuracy is None, "they are not for scoring"
    assert result.summary["labels_given"] == 3
    assert any("3 of the 30" in note for note in result.notes)
    plain = mrtf_fedml.label(X[SERVER], own, rounds=1, **QUICK)
    learnt, before = (each.model.predict_proba(X[SERVER][:1])[0, given[0]] for each in (result, plain))
    assert learnt > before


def test_result_model_accepts_raw_samples(result: Result) -> None:
    assert (result.predict(X[SERVER]) == result.labels).all()
    np.testing.assert_allclose(result.model.predict_proba(X[SERVER]), result.probabilities, atol=1e-6)
    assert result.model(torch.tensor(X[:4])).shape == (4, 2)
    with pytest.raises(mrtf_fedml.UserError, match=r"has shape \(2,\) but the model was trained on \(3,\)"):
        result.predict(X[:, :2])


def test_result_predict_warns_of_samples_in_other_units() -> None:
    x, y = np.concatenate([X, X + 0.001]), np.concatenate([TEXTS, TEXTS])
    own = [(x[start : start + 60], y[start : start + 60]) for start in (0, 60)]
    result = mrtf_fedml.label(x[120:], own, rounds=2, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.predict(x[:120])
        table = result.predict_table(x[:120])
    assert table["label"].tolist() == result.predict(x[:120]).tolist()
    is_calibrated = result.summary["estimated_accuracy"] is not None
    assert table["probability_correct"].notna().all() == is_calibrated
    shifted = x[:50] * [1, 1, 1.8] + [0, 0, 32]
    with pytest.warns(UserWarning, match="feature 2"):
        result.predict(shifted)
    assert "feature 2" in result.model.check(shifted)[0]


def test_label_twice_gives_equal_results_and_restores_process_state(result: Result, tmp_path: Path) -> None:
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    level, threads = logging.getLogger().level, torch.get_num_threads()
    handlers = list(logging.getLogger().handlers)
    run_dir = tmp_path / "kept"
    again = mrtf_fedml.label(X[SERVER], clients(), rounds=8, run_dir=str(run_dir), **QUICK)
    assert (again.probabilities == result.probabilities).all(), "the labels of the server's set change nothing"
    assert again.accuracy is None
    assert again.summary["estimated_accuracy"] is None
    reason = "no estimate: too few samples (9 held out by clients, 30 of the server)"
    assert reason in repr(again)
    assert reason in again.report.html
    assert again.run_dir == run_dir
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    assert (logging.getLogger().level, torch.get_num_threads()) == (level, threads)
    assert logging.getLogger().handlers == handlers
    # The kept folder is an ordinary run directory.
    np.savez(tmp_path / "more.npz", x_test=X[SERVER])
    assert main(["predict", str(run_dir), str(tmp_path / "more.npz"), "--out", str(tmp_path / "out.csv")]) == 0
    assert [line.split(",")[3] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]] == list(again.labels)


def test_label_accepts_loaders_tensors_tables_and_fedml_tuples_with_equal_results() -> None:
    tables = [(pandas.DataFrame(x, columns=list("abc")), pandas.Series(y)) for x, y in clients(Y)]
    # Columns are known by their names, and rows by theirs.
    server = pandas.DataFrame(X[SERVER], columns=list("abc"), index=[f"patient {row}" for row in range(30)])
    sets = [TensorDataset(torch.tensor(x).float(), torch.tensor(y)) for x, y in clients(Y)]
    loaders = [DataLoader(one, batch_size=7) for one in sets]
    inputs = torch.tensor(X[SERVER]).float()
    unlabelled = DataLoader(TensorDataset(inputs, torch.full((30,), -1)), batch_size=8)
    local = dict(enumerate(loaders))
    eight = (90, 30, None, unlabelled, dict.fromkeys(range(3), 30), local, local, 2)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    start = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    given = (
        (inputs, clients(Y)),
        (server[["c", "a", "b"]], tables),
        (unlabelled, sets),
        (eight, None),
    )
    results = [mrtf_fedml.label(x, own, net, rounds=2, **QUICK) for x, own in given]
    for other in results[1:3]:
        np.testing.assert_allclose(other.probabilities, results[0].probabilities, atol=1e-5)
    assert results[1].ids[:2] == ["patient 0", "patient 1"]
    # A loader of FedML's is drawn from in its own order, so the last one is near and not the same.
    assert np.mean(results[3].labels == results[0].labels) > 0.8
    assert all(torch.equal(tensor, start[name]) for name, tensor in net.state_dict().items()), "it is the caller's"
    assert results[0].labels.dtype.kind == "i"


def test_label_accepts_tables_with_categories_and_missing_values_and_predicts_on_more() -> None:
    table = pandas.DataFrame(X, columns=list("abc")).assign(ward=pandas.Categorical(TEXTS), smoker=X[:, 0] > 1000)
    table.loc[5, "a"] = np.nan
    own = [(table[start : start + 30], TEXTS[start : start + 30]) for start in (0, 30, 60)]
    result = mrtf_fedml.label(table[SERVER], own, rounds=3, fill_missing=True, **QUICK)
    assert (result.predict(table[SERVER]) == result.labels).all()
    with pytest.raises(mrtf_fedml.UserError, match="x lacks the column ward"):
        result.predict(table[SERVER].drop(columns="ward"))


def test_label_with_extra_classes_and_uint8_images(
    caplog: pytest.LogCaptureFixture,
) -> None:
    images = np.random.default_rng(1).integers(0, 256, size=(40, 8, 8), dtype=np.uint8)
    own = [(images[:10], [3, 5] * 5), (images[10:20], [5, 3] * 5)]
    result = mrtf_fedml.label(images[20:], own, "lenet", rounds=1, classes=[3, 4, 5], **QUICK)
    assert set(result.labels) <= {3, 4, 5}
    assert result.probabilities.shape == (20, 3)
    assert (result.predict(images[20:]) == result.labels).all()
    assert result.model.preprocess(images).shape == (40, 1, 8, 8)
