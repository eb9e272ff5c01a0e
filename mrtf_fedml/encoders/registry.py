"""The encoder that `model_args.encoder` names."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config import ModelSettings
from ..config.user_code import import_object
from ..errors import UserError
from .encoder import BatchFunction, Encoder, make_digest
from .images import (
    NORMALIZATIONS,
    ImagePreprocessing,
    select_normalization,
    timm_encoder,
    torchvision_encoder,
)

_KEY = "model_args.encoder"
_FORMS = "torchvision:NAME, timm:NAME, onnx:FILE, sentence-transformers:FOLDER or package.module:function"


def load_encoder(settings: ModelSettings, download: bool = False, device: str = "cpu") -> Encoder | None:
    """The encoder of the settings; None if they name none.

    Args:
        settings: `model_args`.
        download: whether missing weights are downloaded.
        device: where it computes, as PyTorch names it.
    """
    if settings.encoder is None:
        given = [key for key in ("encoder_weights", "encoder_size") if getattr(settings, key) is not None]
        if given:
            raise UserError(f"model_args.{given[0]} is set without {_KEY}; set {_KEY} too, or leave {given[0]} out")
        return None
    kind, _, rest = settings.encoder.partition(":")
    if not rest:
        raise UserError(f"{_KEY} is {settings.encoder!r}; write {_FORMS}")
    if kind in ("torchvision", "timm"):
        make = torchvision_encoder if kind == "torchvision" else timm_encoder
        return make(rest, settings, download, device)
    if settings.encoder_weights is not None:
        raise UserError(f"model_args.encoder_weights does not apply to {_KEY} {settings.encoder!r}; leave it out")
    if kind == "onnx":
        return onnx_encoder(_existing_path(settings.encoder, rest), settings)
    if settings.encoder_size is not None or settings.encoder_normalization != "auto":
        raise UserError(
            f"model_args.encoder_size and encoder_normalization do not apply to {_KEY} {settings.encoder!r}; leave "
            "them out"
        )
    if kind == "sentence-transformers":
        return sentence_encoder(_existing_path(settings.encoder, rest), device)
    return user_encoder(settings.encoder)


def _existing_path(name: str, rest: str) -> Path:
    path = Path(os.path.expanduser(rest))
    if not path.exists():
        raise UserError(f"{_KEY} {name!r}: there is no {str(path)!r}; correct the path")
    return path


def onnx_encoder(file: Path, settings: ModelSettings) -> Encoder:
    """The first output of an ONNX file with one input: images [N, 3, H, W], or rows of numbers."""
    name = f"onnx:{file.name}"
    session = _open_onnx(file, name)
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(float)":
        kinds = ", ".join(f"{entry.name} {entry.type}" for entry in inputs)
        raise UserError(f"{_KEY} {name!r} has the inputs {kinds}; it must have one input of floats")
    shape = inputs[0].shape
    is_image = len(shape) == 4
    preprocessing = None
    if is_image:
        fixed = [size for size in shape[2:] if isinstance(size, int)]
        height, width = fixed if len(fixed) == 2 else [settings.encoder_size or 224] * 2
        if settings.encoder_size is not None and (height, width) != (settings.encoder_size, settings.encoder_size):
            raise UserError(
                f"model_args.encoder_size is {settings.encoder_size} but {name} has images of {height} x {width}; "
                "leave it out"
            )
        normalization = select_normalization(settings, NORMALIZATIONS["imagenet"])
        preprocessing = ImagePreprocessing((height, width), normalization)
    elif settings.encoder_size is not None or settings.encoder_normalization != "auto":
        raise UserError(f"model_args.encoder_size and encoder_normalization: {name} reads no images; leave them out")

    run = OnnxFunction(file, session, preprocessing)
    facts = "" if preprocessing is None else repr((preprocessing.size, settings.encoder_normalization))
    return Encoder(name, make_digest("onnx", file, facts), "images" if is_image else "any", lambda: run)


class OnnxFunction:
    """The first output of an ONNX file for a batch.

    Attributes:
        file: the ONNX file.
        preprocessing: of images; None for rows of numbers.
    """

    def __init__(self, file: Path, session: Any, preprocessing: ImagePreprocessing | None) -> None:
        self.file = file
        self.preprocessing = preprocessing
        self._session = session
        self._input = session.get_inputs()[0]

    @property
    def fixed_batch_size(self) -> int | None:
        """The batch size for which the file was exported; None where it takes any."""
        size = self._input.shape[0]
        return size if isinstance(size, int) and size > 0 else None

    def __call__(self, batch: Tensor) -> Tensor:
        """The features [N, ...]."""
        prepared = batch.float() if self.preprocessing is None else self.preprocessing(batch)
        if self.preprocessing is None and len(self._input.shape) == 2:
            prepared = prepared.flatten(1)
        # A file that was exported for a fixed batch size takes batches of that size only: the last one is padded.
        size = self.fixed_batch_size or len(prepared)
        padding = prepared[-1:].expand(-len(prepared) % size, *prepared.shape[1:])
        batches = torch.cat([prepared, padding]).split(size)
        outputs = [torch.from_numpy(self._session.run(None, {self._input.name: part.numpy()})[0]) for part in batches]
        return torch.cat(outputs)[: len(prepared)]


def _open_onnx(file: Path, name: str) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"{_KEY} {name!r} needs onnxruntime; pip install 'mrtf_fedml[encoders]'") from None
    options = onnxruntime.SessionOptions()
    # As many threads as PyTorch: the number is part of a run's identity.
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{_KEY} {name!r} cannot be read as an ONNX model ({reason}); export it again") from None


def sentence_encoder(folder: Path, device: str) -> Encoder:
    """A sentence-transformers model in a folder."""
    name = f"sentence-transformers:{folder.absolute().name}"
    if not (folder / "modules.json").is_file():
        raise UserError(f"{_KEY} {name!r}: {str(folder)!r} has no modules.json; give the folder of a saved model")

    def build() -> BatchFunction:
        # Nothing is looked up on a network.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils.logging import disable_progress_bar
        except ImportError:
            raise UserError(
                f"{_KEY} {name!r} needs sentence-transformers; pip install 'mrtf_fedml[encoders]'"
            ) from None
        disable_progress_bar()
        try:
            model = SentenceTransformer(str(folder), device=device, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
            raise UserError(f"{_KEY} {name!r} cannot be read ({reason}); save the model again") from error
        return partial(model.encode, convert_to_tensor=True, show_progress_bar=False)

    return Encoder(name, make_digest("sentence-transformers", folder), "text", build, device)


def user_encoder(name: str) -> Encoder:
    """The user's function `package.module:function`, from a batch to features.

    The batch is what a model would get: images [N, channels, H, W] in [-1, 1], rows of numbers, or a list of strings.
    The digest is that of the function's source file, and of its weights if it is a module.
    """
    function: Callable[[Any], Any] = import_object(name, _KEY)
    if not callable(function) or isinstance(function, type):
        raise UserError(f"{_KEY} {name!r} is a {type(function).__name__}; name a function of a batch, or a module")
    parts: list[str | Path] = [name]
    if isinstance(function, nn.Module):
        function = function.eval()
        parts += [f"{key} {_hash_tensor(tensor)}" for key, tensor in function.state_dict().items()]
    owner = function if inspect.isroutine(function) else type(function)
    try:
        source = inspect.getsourcefile(inspect.unwrap(owner) if inspect.isroutine(owner) else owner)
    except TypeError:
        source = None
    if source is not None:
        parts.append(Path(source))
    return Encoder(name, make_digest(*parts), "any", lambda: function)


def _hash_tensor(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return hashlib.sha256(content).hexdigest()
