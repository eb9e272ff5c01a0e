"""`mrtf predict`: a finished run's model labels more data, exactly as the run labelled its own."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.diagnostics.label_trust import CALIBRATION_FILE
from tests.conftest import small_config, write_yaml
from tests.data.sources.formats import random_images, write_image

#: Raw features, of which the model sees standardised ones.
X = np.random.default_rng(0).normal(size=(80, 3)) * [100, 1, 0.01] + [1000, 0, 5]
Y = (X[:, 0] > 1000).astype(int)
NAMES = ["low", "high", "never seen"]


def run(folder: Path, **keys: Any) -> Path:
    clients = {"client_num_in_total": 3, "client_num_per_round": 2, "partition_method": "iid", "comm_round": 1}
    config = small_config(run_dir=str(folder / "run"), refine_steps=2, **clients, **keys)
    assert main(["run", "--cf", str(write_yaml(folder / "config.yaml", config))]) == 0
    return folder / "run"


def table(path: Path, rows: slice, columns: str, ids: bool = True) -> Path:
    lines = [",".join([*columns, "id", "label"])]
    for number in range(80)[rows]:
        values = {"a": X[number, 0], "b": X[number, 1], "c": X[number, 2]}
        lines.append(",".join([*(repr(float(values[name])) for name in columns), f"row {number}", NAMES[Y[number]]]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arrays")
    np.savez(folder / "own.npz", x_train=X[:60], y_train=Y[:60], x_test=X[60:], class_names=NAMES)
    return run(folder, dataset="npz", data_file=str(folder / "own.npz"), model="mlp", hidden_size=8)


def labels(file: Path) -> list[list[str]]:
    """The rows up to the confidence: how far labels of other samples can be trusted is not known."""
    return [row.split(",")[:5] for row in file.read_text().splitlines()]


def test_predict_on_the_runs_samples_gives_the_runs_labels(
    tmp_path: Path, arrays: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["predict", str(arrays), str(arrays.parent / "own.npz")]) == 0
    assert "20 samples labelled: own.predictions.csv" in capsys.readouterr().out
    assert labels(tmp_path / "own.predictions.csv") == labels(arrays / "predictions.csv")
    np.savez(tmp_path / "more.npz", x_test=X[60:63], ids=["p", "q", "r"])
    assert main(["predict", str(arrays), "more.npz", "--out", "labels.csv"]) == 0
    few = [line.split(",") for line in (tmp_path / "labels.csv").read_text().splitlines()]
    whole = [line.split(",") for line in (arrays / "predictions.csv").read_text().splitlines()]
    assert [row[1] for row in few] == ["id", "p", "q", "r"]
    assert [row[2:4] for row in few] == [row[2:4] for row in whole[:4]]


def test_predict_warns_of_other_units_and_does_not_overwrite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "kelvin,b,label\n"
    lines = [f"{300 + 5 * Y[n] + X[n, 1]:.3f},{X[n, 2]},{NAMES[Y[n]]}\n" for n in range(80)]
    (tmp_path / "clients.csv").write_text(header + "".join(lines[:40]))
    (tmp_path / "server.csv").write_text(header + "".join(lines[40:]))
    files = {"data_file": str(tmp_path / "clients.csv"), "server_file": str(tmp_path / "server.csv")}
    run_dir = run(tmp_path, dataset="csv", **files, model="mlp", hidden_size=8)
    out = tmp_path / "out.csv"
    (tmp_path / "celsius.csv").write_text(
        "kelvin,b,case\n" + "".join(f"{20 + Y[n]},{X[n, 2]},c{n}\n" for n in range(9))
    )
    arguments = ["predict", str(run_dir), str(tmp_path / "celsius.csv"), "--out", str(out), "--set", "id_column=case"]
    assert main(arguments) == 3
    assert "'kelvin' (mean 20" in capsys.readouterr().err
    assert [line.split(",")[1] for line in out.read_text().splitlines()[:2]] == ["id", "c0"]
    before = out.read_bytes()
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["predict", str(run_dir), files["server_file"], "--out", str(out), "--force"]) == 0
    assert out.read_bytes() != before
    # How far a label can be trusted is stated for samples like those of the run alone.
    calibration = {
        "slope": 0.5,
        "intercepts": [1.0] * len(NAMES),
        "samples": 50.0,
        "threshold": 0.0,
        "coverage": 0.9,
        "accept": None,
    }
    (run_dir / CALIBRATION_FILE).write_text(json.dumps(calibration))
    assert main(["predict", str(run_dir), files["server_file"], "--out", str(out), "--force"]) == 0
    rows = list(csv.DictReader(out.open()))
    assert all(float(row["probability_correct"]) > 0.7 for row in rows)
    assert {row["prediction_set"] for row in rows} == {"high | low"}
    assert {row["decision"] for row in rows} == {"abstain"}
    assert main([*arguments, "--force"]) == 3
    assert {row["probability_correct"] for row in csv.DictReader(out.open())} == {""}


def test_predict_reads_a_table_by_column_names(tmp_path: Path) -> None:
    files = {
        "data_file": str(table(tmp_path / "clients.csv", slice(0, 60), "abc")),
        "server_file": str(table(tmp_path / "server.csv", slice(60, 80), "abc")),
    }
    run_dir = run(tmp_path, dataset="csv", **files, model="mlp", hidden_size=8)
    more, out = table(tmp_path / "more.csv", slice(60, 80), "cab"), tmp_path / "out.csv"
    assert main(["predict", str(run_dir), str(more), "--out", str(out)]) == 0
    assert out.read_bytes() == (run_dir / "predictions.csv").read_bytes()


def test_predict_reads_a_folder_of_images(tmp_path: Path) -> None:
    for name in ("clients/cat", "clients/dog", "server"):
        (tmp_path / name).mkdir(parents=True)
        for number, image in enumerate(random_images(12, 16, 16)):
            write_image(tmp_path / name / f"{number}.png", image)
    folders = {"data_file": str(tmp_path / "clients"), "server_file": str(tmp_path / "server")}
    run_dir = run(tmp_path, dataset="images", **folders, model="lenet")
    out = tmp_path / "out.csv"
    assert main(["predict", str(run_dir), str(tmp_path / "server"), "--out", str(out)]) == 0
    assert out.read_bytes() == (run_dir / "predictions.csv").read_bytes()
    assert main(["predict", str(run_dir), str(tmp_path / "server" / "7.png"), "--out", str(out), "--force"]) == 0
    rows = [line.split(",")[1:4] for line in out.read_text().splitlines()]
    whole = [line.split(",")[1:4] for line in (run_dir / "predictions.csv").read_text().splitlines()]
    assert rows == [whole[0], next(row for row in whole if row[0] == "7.png")]


def test_predict_reads_categories_and_missing_values_as_the_run_did(tmp_path: Path) -> None:
    def write(name: str, rows: range, head: str, lines: list[str]) -> Path:
        (tmp_path / name).write_text("\n".join([head, *(lines[row] for row in rows)]) + "\n")
        return tmp_path / name

    ward = ["north", "south", "", "east"]
    lines = [f"{X[n, 0]!r};{ward[n % 4]};{'' if n % 9 == 0 else X[n, 1]};{NAMES[Y[n]]}" for n in range(80)]
    turned = [f"{ward[n % 4]},{'NA' if n % 9 == 0 else X[n, 1]},{X[n, 0]!r}" for n in range(80)]
    files = {
        "data_file": str(write("clients.csv", range(60), "a;ward;b;label", lines)),
        "server_file": str(write("server.csv", range(60, 80), "a;ward;b;label", lines)),
    }
    run_dir = run(tmp_path, dataset="csv", **files, fill_missing=True, model="mlp", hidden_size=8)
    more, out = write("more.csv", range(60, 80), "ward,b,a", turned), tmp_path / "out.csv"
    assert main(["predict", str(run_dir), str(more), "--out", str(out)]) == 0
    assert out.read_bytes() == (run_dir / "predictions.csv").read_bytes()


def test_predict_finds_a_user_model_in_the_folder_of_the_run(
    tmp_path: Path, arrays: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    (work / "nets_of_mine.py").write_text(
        "from torch import nn\n\n\n"
        "def net(input_dim, num_classes):\n"
        "    return nn.Sequential(nn.Linear(input_dim, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))\n"
    )
    monkeypatch.chdir(work)
    file = str(arrays.parent / "own.npz")
    run_dir = run(work, dataset="npz", data_file=file, model="nets_of_mine:net")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(work)])
    monkeypatch.delitem(sys.modules, "nets_of_mine")
    assert main(["predict", str(run_dir), file, "--out", "out.csv"]) == 0
    assert labels(elsewhere / "out.csv") == labels(run_dir / "predictions.csv")


def test_predict_with_unsuitable_samples_exits_with_one_sentence(
    tmp_path: Path, arrays: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "wide.npz", x_test=np.zeros((4, 5)))
    np.savez(tmp_path / "images.npz", x_test=np.zeros((4, 8, 8), np.uint8))
    (tmp_path / "text.txt").write_text("nothing")
    (tmp_path / "one.png").write_bytes(b"")
    for name, message in (
        ("wide.npz", "has shape (5,) but the model was trained on (3,)"),
        ("images.npz", "another kind of sample"),
        ("text.txt", "has an unknown file type"),
        ("nowhere.npz", "does not exist"),
        (".", "is a folder, but the model was not trained on images"),
        ("one.png", "is an image, but the model was not trained on images"),
    ):
        assert main(["predict", str(arrays), str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}\n")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "wide.npz")]) == 2
    assert "no round of the run was finished" in capsys.readouterr().err


def test_model_card_names_algorithm_and_score(arrays: Path) -> None:
    card = (arrays / "model_card.md").read_text()
    assert "one of 3 classes: low, high, never seen" in card, "a class without samples keeps its name"
    assert "1 of 1 rounds, 2 of 3 clients in each" in card
    assert "unknown: the server's set has no labels" in card
