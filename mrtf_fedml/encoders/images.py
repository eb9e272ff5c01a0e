"""Image encoders of torchvision and timm: their classifiers without the last layer."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..config import ModelSettings
from ..errors import UserError, suggest_name
from ..models import FeatureExtractor
from ..models.state_dict import check_state_dict
from ..models.weights_file import read_weights
from .encoder import BatchFunction, Encoder, make_digest

_log = logging.getLogger(__name__)

_KEY = "model_args.encoder"


@dataclass(frozen=True)
class Normalization:
    """(x - mean) / deviation per channel, of pixels in [0, 1]."""

    mean: Sequence[float]
    deviation: Sequence[float]


NORMALIZATIONS = {
    "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "symmetric": Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "unit": Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


class ImagePreprocessing(nn.Module):
    """Images [N, 1 or 3, H, W] in [-1, 1] as an encoder expects them: resized, in colour, normalized."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: tuple[int, int], normalization: Normalization) -> None:
        super().__init__()
        self.size = size
        for name in ("mean", "deviation"):
            values = torch.tensor(getattr(normalization, name), dtype=torch.float32)
            self.register_buffer(name, values.reshape(1, 3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, size, size]."""
        if images.shape[1] == 1:
            images = images.repeat(1, 3, 1, 1)
        if tuple(images.shape[2:]) != self.size:
            shrinks = images.shape[2] > self.size[0] or images.shape[3] > self.size[1]
            images = nn.functional.interpolate(
                images, size=self.size, mode="bicubic", align_corners=False, antialias=shrinks
            )
            # Bicubic interpolation overshoots.
            images = images.clamp(-1, 1)
        normalized: Tensor = (images * 0.5 + 0.5 - self.mean) / self.deviation
        return normalized


class ImageEncoder(nn.Module):
    """Preprocessing and network: from images [N, 1 or 3, H, W] in [-1, 1] to features [N, D]."""

    def __init__(self, preprocessing: ImagePreprocessing, network: nn.Module) -> None:
        super().__init__()
        self.preprocessing = preprocessing
        self.network = network
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """The features [N, D]."""
        features: Tensor = self.network(self.preprocessing(images))
        return features.flatten(1)


class _WithoutHead(nn.Module):
    """A classifier's h(x)."""

    def __init__(self, model: nn.Module, extractor: FeatureExtractor) -> None:
        super().__init__()
        self.model = model
        self._extractor = extractor

    def forward(self, images: Tensor) -> Tensor:
        return self._extractor.extract(self.model, images)[1]


def torchvision_encoder(name: str, settings: ModelSettings, download: bool, device: str) -> Encoder:
    """The torchvision classifier `name` without its last layers."""
    import torchvision.models

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise UserError(f"{_KEY} 'torchvision:{name}': torchvision has no such model; {suggest_name(name, known)}")
    trained = torchvision.models.get_model_weights(name).DEFAULT
    transforms = trained.transforms()
    default = Normalization(tuple(transforms.mean), tuple(transforms.std))
    size = settings.encoder_size or int(transforms.crop_size[0])

    def fetch() -> Path:
        # The names of torchvision's files end with the first digits of their SHA-256.
        digits = torch.hub.HASH_REGEX.search(trained.url)
        return _download(trained.url, hash_prefix=digits and digits[1])

    def make(file: Path) -> nn.Module:
        model = torchvision.models.get_model(name, weights=None)
        _load_weights(model, file)
        return _WithoutHead(model, FeatureExtractor(model.eval(), None, torch.zeros(2, 3, size, size)))

    file = _weights_file(f"torchvision:{name}", settings, download, fetch)
    return _make_encoder(f"torchvision:{name}", file, (size, size), default, settings, make, device)


def timm_encoder(name: str, settings: ModelSettings, download: bool, device: str) -> Encoder:
    """The timm model `name` without its classifier."""
    try:
        import timm
    except ImportError:
        raise UserError(f"{_KEY} 'timm:{name}' needs timm; pip install 'mrtf_fedml[encoders]'") from None
    if not timm.is_model(name):
        # timm has more than a thousand models: only near names are listed.
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "timm.list_models() lists them"
        raise UserError(f"{_KEY} 'timm:{name}': timm has no such model; {hint}")
    trained = timm.get_pretrained_cfg(name, allow_unregistered=False)
    default = NORMALIZATIONS["imagenet"] if trained is None else Normalization(trained.mean, trained.std)
    size = settings.encoder_size or (224 if trained is None else trained.input_size[-1])

    def fetch() -> Path:
        if trained is not None and trained.hf_hub_id:
            from huggingface_hub import hf_hub_url

            file = trained.hf_hub_filename or "model.safetensors"
            # Most of its files have the same name.
            return _download(hf_hub_url(trained.hf_hub_id, file), f"{trained.hf_hub_id.replace('/', '--')}--{file}")
        if trained is not None and trained.url:
            return _download(trained.url)
        raise ValueError("timm knows no address of trained weights")

    def make(file: Path) -> nn.Module:
        model = timm.create_model(name, pretrained=False)
        _load_weights(model, file)
        model.reset_classifier(0)
        return model

    file = _weights_file(f"timm:{name}", settings, download, fetch)
    return _make_encoder(f"timm:{name}", file, (size, size), default, settings, make, device)


def select_normalization(settings: ModelSettings, default: Normalization) -> Normalization:
    """That of `encoder_normalization`; `auto` means the encoder's own."""
    name = settings.encoder_normalization
    return default if name == "auto" else NORMALIZATIONS[name]


def _make_encoder(
    name: str,
    file: Path,
    size: tuple[int, int],
    default: Normalization,
    settings: ModelSettings,
    make: Callable[[Path], nn.Module],
    device: str,
) -> Encoder:
    normalization = select_normalization(settings, default)
    digest = make_digest(name, file, repr((size, tuple(normalization.mean), tuple(normalization.deviation))))

    def build() -> BatchFunction:
        network = make(file)
        encoder = ImageEncoder(ImagePreprocessing(size, normalization), network).to(device)
        return _OnDevice(encoder, device)

    return Encoder(name, digest, "images", build, device)


class _OnDevice:
    """The module's function for batches on the CPU."""

    def __init__(self, module: nn.Module, device: str) -> None:
        self.module = module
        self._device = device

    def __call__(self, batch: Tensor) -> Tensor:
        features: Tensor = self.module(batch.to(self._device))
        return features


def _weights_file(name: str, settings: ModelSettings, download: bool, fetch: Callable[[], Path]) -> Path:
    """The file with the trained weights: the user's, or a downloaded one."""
    if settings.encoder_weights is not None:
        file = Path(os.path.expanduser(settings.encoder_weights))
        if not file.is_file():
            raise UserError(f"model_args.encoder_weights {str(file)!r} is not a file; correct the path")
        return file
    if not download:
        raise UserError(
            f"{_KEY} {name!r} has no trained weights; set model_args.encoder_weights to their file, or "
            "data_args.download: true"
        )
    try:
        return fetch()
    except Exception as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        raise UserError(
            f"{_KEY} {name!r}: its weights cannot be downloaded ({reason}); set model_args.encoder_weights to a file"
        ) from error


def _download(url: str, name: str | None = None, hash_prefix: str | None = None) -> Path:
    """The weights at this address, in a file of PyTorch's folder of downloads; downloaded once, and checked."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    file = folder / (name or url.rpartition("/")[2])
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _log.warning("downloading %s", url)
        torch.hub.download_url_to_file(url, str(file), hash_prefix, progress=False)
        try:
            read_weights(file, "data_args.download:")
        except UserError:
            # A connection that ended early: the next run would find the file.
            file.unlink()
            raise
    return file


def _load_weights(model: nn.Module, file: Path) -> None:
    """Load the file into the model, by name, or by position where another program has named the same layers.

    Positions are used only if every entry, in order, has the shape and the kind (`weight`, `running_mean`, ...) of the
    model's.
    """
    weights, expected = read_weights(file, "model_args.encoder_weights"), model.state_dict()
    if weights.keys() != expected.keys() and _signature(weights) == _signature(expected):
        _log.info("%s names its layers differently; they are matched by position", file.name)
        weights = dict(zip(expected, weights.values(), strict=True))
    label, remedy = f"model_args.encoder_weights {str(file)!r}", "give the file of this encoder"
    check_state_dict(label, weights, expected, remedy)
    model.load_state_dict(weights)


def _signature(weights: dict[str, Tensor]) -> list[tuple[str, torch.Size]]:
    return [(name.rpartition(".")[2], tensor.shape) for name, tensor in weights.items()]
