"""`load_encoder`: each form of `model_args.encoder`, and its mistakes."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import Tensor, nn

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.encoders import Encoder, images, load_encoder
from mrtf_fedml.encoders.images import ImagePreprocessing, Normalization, _download
from mrtf_fedml.errors import UserError

from .tiny import pixels, write_onnx

IMAGES = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


def encoder_of(name: str, download: bool = False, **keys: Any) -> Encoder:
    encoder = load_encoder(ModelSettings(encoder=name, **keys), download)
    assert encoder is not None
    return encoder


def squeezenet_weights(folder: Path, rename: bool = False) -> Path:
    """Random weights of a small torchvision model, with its own names or others."""
    import torchvision.models

    torch.manual_seed(0)
    weights = torchvision.models.squeezenet1_1(weights=None).state_dict()
    if rename:
        weights = {f"net_{index}.{key.rpartition('.')[2]}": value for index, (key, value) in enumerate(weights.items())}
    file = folder / ("renamed.pth" if rename else "weights.pth")
    torch.save(weights, file)
    return file


def test_no_encoder_is_none() -> None:
    assert load_encoder(ModelSettings()) is None


def test_function_of_the_user_is_called_with_the_images() -> None:
    assert torch.equal(encoder_of("tests.encoders.tiny:pixels")(IMAGES), pixels(IMAGES))


def test_digest_of_a_module_depends_on_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from . import tiny

    digests = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        monkeypatch.setattr(tiny, "CONSTANT", nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)))
        digests.append(encoder_of("tests.encoders.tiny:CONSTANT").digest)
    assert digests[0] == digests[2] != digests[1]


def test_torchvision_encoder_gives_the_input_of_the_head(tmp_path: Path) -> None:
    import torchvision.models

    file = squeezenet_weights(tmp_path)
    encoder = encoder_of("torchvision:squeezenet1_1", encoder_weights=str(file), encoder_size=32)
    features = encoder(IMAGES)
    model = torchvision.models.squeezenet1_1(weights=None)
    model.load_state_dict(torch.load(file, weights_only=True))
    normalization = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        maps = model.eval().features(ImagePreprocessing((32, 32), normalization)(IMAGES))
    assert torch.allclose(features, maps.flatten(1), atol=1e-5)


def test_weights_with_other_names_are_matched_by_position(tmp_path: Path) -> None:
    files = [squeezenet_weights(tmp_path, rename) for rename in (False, True)]
    features: list[Tensor] = [
        encoder_of("torchvision:squeezenet1_1", encoder_weights=str(file), encoder_size=32)(IMAGES) for file in files
    ]
    assert torch.equal(*features)


def test_weights_of_another_network_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    encoder = encoder_of("torchvision:resnet18", encoder_weights=str(squeezenet_weights(tmp_path)), encoder_size=32)
    with pytest.raises(UserError, match=r"encoder_weights.*weights\.pth"):
        encoder(IMAGES)


@pytest.mark.parametrize("key", ["encoder_size", "encoder_normalization"])
def test_digest_depends_on_the_preprocessing(tmp_path: Path, key: str) -> None:
    file, values = str(squeezenet_weights(tmp_path)), {"encoder_size": 64, "encoder_normalization": "unit"}
    digests = {
        encoder_of("torchvision:squeezenet1_1", encoder_weights=file, **changes).digest
        for changes in ({}, {key: values[key]})
    }
    assert len(digests) == 2


def test_preprocessing_resizes_repeats_grey_and_normalizes() -> None:
    preprocessing = ImagePreprocessing((4, 4), Normalization((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
    white, black = torch.ones(1, 1, 8, 8), -torch.ones(1, 1, 2, 2)
    assert torch.allclose(preprocessing(white), torch.full((1, 3, 4, 4), 2.0), atol=1e-5)
    assert torch.allclose(preprocessing(black), torch.full((1, 3, 4, 4), -2.0), atol=1e-5)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Files by name on a real HTTP server, from which weights are downloaded instead of from their own addresses.

    An entry `short` is a name whose connection ends after half of the file.
    """
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            content = files.get(name)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if files.get("short") == name.encode() else content)

        def log_message(self, *_: Any) -> None:
            pass

    def download_from_server(url: str, *arguments: Any, **keys: Any) -> Path:
        assert url.startswith("https://")
        return _download(f"http://127.0.0.1:{server.server_port}/{url.rpartition('/')[2]}", *arguments, **keys)

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(images, "_download", download_from_server)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield files
        server.shutdown()
        thread.join()


def name_weights(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let torchvision name this file as the weights of squeezenet1_1."""
    import torchvision.models

    weights = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.value
    monkeypatch.setattr(
        torchvision.models.SqueezeNet1_1_Weights.DEFAULT,
        "_value_",
        replace(weights, url=f"https://download.pytorch.org/models/{name}"),
    )


def test_download_brings_the_file_once_and_checks_its_hash(
    tmp_path: Path, served: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = squeezenet_weights(tmp_path)
    name = f"squeezenet1_1-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}.pth"
    name_weights(monkeypatch, name)
    served[name] = file.read_bytes()
    downloaded = encoder_of("torchvision:squeezenet1_1", download=True, encoder_size=32)
    served.clear()
    again = encoder_of("torchvision:squeezenet1_1", download=True, encoder_size=32)
    given = encoder_of("torchvision:squeezenet1_1", encoder_weights=str(file), encoder_size=32)
    assert downloaded.digest == again.digest == given.digest
    assert torch.equal(downloaded(IMAGES), given(IMAGES))


@pytest.mark.parametrize("fault", ["HTTP Error 404", "invalid hash", "Connection refused"])
def test_failed_download_is_one_sentence_and_leaves_no_file(
    tmp_path: Path, served: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    with socket.socket() as silent:
        if fault == "invalid hash":
            # torchvision's own name, and so its hash, for other weights.
            served["squeezenet1_1-b8a52dc0.pth"] = squeezenet_weights(tmp_path).read_bytes()
        elif fault == "Connection refused":
            # A port on which nobody listens.
            silent.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{silent.getsockname()[1]}/squeezenet1_1-b8a52dc0.pth"
            monkeypatch.setattr(images, "_download", lambda url, **keys: _download(address, **keys))
        with pytest.raises(UserError, match=rf"torchvision:squeezenet1_1.*{fault}.*encoder_weights"):
            encoder_of("torchvision:squeezenet1_1", download=True)
    assert not [file for file in (tmp_path / "hub").rglob("*") if file.is_file()]


def test_download_that_ended_early_is_repeated(tmp_path: Path, served: dict[str, bytes]) -> None:
    pytest.importorskip("timm")
    import timm

    file = tmp_path / "model.safetensors"
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), file)
    served |= {"model.safetensors": file.read_bytes(), "short": b"model.safetensors"}
    with pytest.raises(UserError, match=r"test_vit.*encoder_weights"):
        encoder_of("timm:test_vit", download=True)
    del served["short"]
    given = encoder_of("timm:test_vit", encoder_weights=str(file))
    assert encoder_of("timm:test_vit", download=True).digest == given.digest


def test_download_of_timm_keeps_one_file_per_model(served: dict[str, bytes]) -> None:
    pytest.importorskip("timm")
    for index, name in enumerate(("timm:resnet18", "timm:resnet34")):
        served["model.safetensors"] = save({"weight": torch.full((1,), float(index))})
        first = encoder_of(name, download=True).digest
        served.clear()
        assert encoder_of(name, download=True).digest == first


@pytest.mark.parametrize(
    ("name", "keys", "named"),
    [
        ("resnet18", {}, "torchvision:NAME"),
        ("torchvision:resnet18", {}, "encoder_weights"),
        ("torchvision:resnet_18", {}, "resnet18"),
        ("torchvision:resnet18", {"encoder_weights": "no.pth"}, r"no\.pth"),
        ("onnx:no.onnx", {}, r"no\.onnx"),
        ("sentence-transformers:no_folder", {}, "no_folder"),
        ("tests.encoders.tiny:missing", {}, "missing"),
        ("tests.encoders.tiny:CONSTANT", {}, "CONSTANT"),
        ("tests.encoders.tiny:pixels", {"encoder_weights": "w.pth"}, "encoder_weights"),
        ("tests.encoders.tiny:pixels", {"encoder_size": 4}, "encoder_size"),
    ],
)
def test_wrong_encoder_setting_is_an_error_that_names_it(name: str, keys: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        encoder_of(name, **keys)


@pytest.mark.parametrize("key", ["encoder_weights", "encoder_size"])
def test_encoder_key_without_encoder_is_an_error(key: str) -> None:
    with pytest.raises(UserError, match=key):
        load_encoder(ModelSettings(**{key: 8}) if key == "encoder_size" else ModelSettings(encoder_weights="w.pth"))


def test_folder_without_a_sentence_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"modules\.json"):
        encoder_of(f"sentence-transformers:{tmp_path}")


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_onnx_encoder_resizes_to_the_files_input_for_any_batch_size(tmp_path: Path, batch: int | None) -> None:
    pytest.importorskip("onnxruntime")
    file = write_onnx(tmp_path / "encoder.onnx", batch=batch)
    encoder = encoder_of(f"onnx:{file}", encoder_normalization="symmetric")
    matrix = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    small = ImagePreprocessing((4, 4), Normalization((0.5,) * 3, (0.5,) * 3))(IMAGES)
    assert torch.allclose(encoder(IMAGES), small.flatten(1) @ matrix, atol=1e-5)
    assert encoder.name == "onnx:encoder.onnx"


def test_damaged_onnx_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"bad\.onnx"):
        encoder_of(f"onnx:{tmp_path / 'bad.onnx'}")
