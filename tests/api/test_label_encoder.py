"""`label()` with an encoder: texts and images, more samples, a saved model, and mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError
from mrtf_fedml.training.run_directory import RunDirectory

LETTERS = "tests.encoders.tiny:letters"
WORDS = {"fruit": ["banana", "papaya", "an apricot", "avocado"], "bird": ["robin", "chicken", "hummingbird", "owl kin"]}


def texts_and_labels(copies: int = 6) -> tuple[list[str], list[str]]:
    pairs = [
        (f"{word} {'!' * copy}", name) for copy in range(copies) for name, words in WORDS.items() for word in words
    ]
    texts, labels = zip(*pairs, strict=True)
    return list(texts), list(labels)


def label_texts(**settings: Any) -> mrtf_fedml.Result:
    texts, labels = texts_and_labels()
    clients = [(texts[::2], labels[::2]), (texts[1::2], labels[1::2])]
    settings = {"encoder": LETTERS, "threads": 1, **settings}
    return mrtf_fedml.label(["a banana", "two robins"], clients, "linear", 4, learning_rate=0.3, **settings)


def test_label_takes_lists_of_strings_and_predicts_more_of_them() -> None:
    result = label_texts()
    assert result.labels.tolist() == ["fruit", "bird"]
    assert result.predict(["papaya and avocado", "chickens"]).tolist() == ["fruit", "bird"]


def test_label_of_strings_without_encoder_names_the_setting() -> None:
    with pytest.raises(UserError, match=r"model_args\.encoder"):
        label_texts(encoder=None)


@pytest.mark.parametrize("texts", [["a", ""], ["a", None], ["a", 3.0]])
def test_label_names_a_sample_that_is_no_text(texts: list[Any]) -> None:
    with pytest.raises(UserError, match="x_server"):
        mrtf_fedml.label(texts, [(["a", "b"], [0, 1])], "linear", 1, encoder=LETTERS)


def test_predictions_of_numbers_by_a_model_of_texts_are_an_error() -> None:
    with pytest.raises(UserError, match="strings"):
        label_texts().predict(np.zeros((2, 26)))


def test_predict_encodes_with_the_runs_encoder_and_the_card_names_it(tmp_path: Path) -> None:
    result = label_texts(run_dir=str(tmp_path / "run"))
    more = np.array(["a papaya", "a chicken"])
    np.savez(tmp_path / "more.npz", x_test=more)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "more.npz"), "--out", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    probabilities = result.model.predict_proba(list(more))
    assert [row["class_name"] for row in rows] == ["fruit", "bird"]
    assert [float(row["confidence"]) for row in rows] == pytest.approx(probabilities.max(axis=1).tolist(), abs=1e-5)
    header = RunDirectory(tmp_path / "run").read_model()[1]
    card = (tmp_path / "run" / "model_card.md").read_text()
    assert header["preprocessing"]["encoder"]["digest"] in card
    assert "texts" in card
    assert str(tmp_path) not in json.dumps(header)


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user, with a copy of the encoder of letters."""
    file = tmp_path / "own_encoder.py"
    file.write_text(
        "import torch\n\n\ndef encode(texts):\n"
        "    return torch.tensor([[t.count(c) for c in 'abcdefghijklmnopqrstuvwxyz'] for t in texts]).float()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


def test_predict_with_a_changed_encoder_is_an_error(
    tmp_path: Path, user_module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label_texts(run_dir=str(tmp_path / "run"), encoder="own_encoder:encode")
    np.savez(tmp_path / "more.npz", x_test=np.array(["a papaya"]))
    words = [
        "predict",
        str(tmp_path / "run"),
        str(tmp_path / "more.npz"),
        "--out",
        str(tmp_path / "out.csv"),
        "--force",
    ]
    assert main(words) == 0
    user_module.write_text(user_module.read_text() + "#")
    assert main(words) == 2
    assert "own_encoder:encode" in capsys.readouterr().err


def test_predict_finds_the_encoders_file_in_the_run_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    from tests.encoders.tiny import write_onnx

    file = write_onnx(tmp_path / "encoder.onnx")
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=np.uint8)
    mrtf_fedml.label(
        pixels[:8], [(pixels, np.arange(40) % 2)], "linear", 1, encoder=f"onnx:{file}", run_dir=str(tmp_path / "run")
    )
    np.savez(tmp_path / "more.npz", x_test=pixels[:3])
    words = [
        "predict",
        str(tmp_path / "run"),
        str(tmp_path / "more.npz"),
        "--out",
        str(tmp_path / "out.csv"),
        "--force",
    ]
    assert main(words) == 0
    predictions = (tmp_path / "out.csv").read_bytes()
    content = file.read_bytes()
    file.unlink()
    assert main(words) == 2
    assert "encoder.onnx" in capsys.readouterr().err
    (tmp_path / "run" / "encoder.onnx").write_bytes(content)
    assert main(words) == 0
    assert (tmp_path / "out.csv").read_bytes() == predictions
    (tmp_path / "run" / "encoder.onnx").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert main(words) == 2
