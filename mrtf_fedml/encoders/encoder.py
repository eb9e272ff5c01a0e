"""`Encoder`: features of many samples, in batches, cached on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..errors import UserError
from .cache import cached_features

#: Samples: a tensor [N, ...], images as [N, channels, H, W] in [-1, 1]; or an array of N strings.
Samples = Tensor | npt.NDArray[Any]

#: From a batch, a tensor or a list of strings, to features [N, ...].
BatchFunction = Callable[[Any], Any]

BATCH_SIZE = 64


@dataclass(frozen=True, eq=False)
class Encoder:
    """Turns samples into rows of features.

    Attributes:
        name: `model_args.encoder`, with the names of files and not their folders.
        digest: a hash of the encoder's files and of its preprocessing. Equal digests give equal features, up to
            rounding.
        reads: the samples that it takes: `images`, `text`, or `any`.
        build: loads the network and returns its function; called when there is something to encode.
        device: where it computes.
    """

    name: str
    digest: str
    reads: Literal["images", "text", "any"]
    build: Callable[[], BatchFunction] = field(repr=False)
    device: str = "cpu"
    _widths: set[int] = field(default_factory=set, init=False, repr=False)

    @cached_property
    def function(self) -> BatchFunction:
        """The function of a batch, loaded when it is first needed."""
        return self.build()

    def __call__(self, samples: Samples) -> Tensor:
        """The features [N, D], float32 on the CPU; more than one batch is cached on this machine.

        Raises:
            UserError: the samples are of a kind that it does not read, or its features are unusable.
        """
        self._check_samples(samples)
        if len(samples) <= BATCH_SIZE:
            # A file per prediction would fill the cache.
            return self._encode(samples)
        features = cached_features(_cache_key(self, samples), lambda: self._encode(samples))
        self._check_width(features)
        return features

    @property
    def module(self) -> nn.Module | None:
        """The encoder as a module from samples to features; None if it is not PyTorch's, or reads texts."""
        function = getattr(self.function, "module", self.function)
        return function if isinstance(function, nn.Module) and self.reads != "text" else None

    def _check_samples(self, samples: Samples) -> None:
        is_text = not isinstance(samples, Tensor)
        if is_text and self.reads == "images":
            raise UserError(f"model_args.encoder {self.name!r} reads images, but the samples are texts; use another")
        if self.reads == "text" and not is_text:
            raise UserError(
                f"model_args.encoder {self.name!r} reads texts, but the samples have shape {tuple(samples.shape[1:])}; "
                "set data_args.text_column, pass lists of strings, or use another encoder"
            )
        if self.reads == "images" and (samples.ndim != 4 or samples.shape[1] not in (1, 3)):
            raise UserError(
                f"model_args.encoder {self.name!r} reads images of 1 or 3 channels, but the samples have shape "
                f"{tuple(samples.shape[1:])}; use another encoder, or none"
            )

    def _encode(self, samples: Samples) -> Tensor:
        function, parts = self.function, []
        # Texts of similar length share a batch, since a batch is padded to its longest text.
        is_text = not isinstance(samples, Tensor)
        order = np.argsort([len(text) for text in samples] if is_text else np.zeros(len(samples)), kind="stable")
        with tqdm(total=len(samples), desc="encoding", unit=" samples", disable=None, leave=False) as bar:
            for start in range(0, len(samples), BATCH_SIZE):
                rows = order[start : start + BATCH_SIZE]
                batch = [str(text) for text in samples[rows]] if is_text else samples[torch.from_numpy(rows)]
                parts.append(self._encode_batch(function, batch, rows))
                bar.update(len(rows))
        rows_in_order = torch.cat(parts)
        features = torch.empty_like(rows_in_order)
        features[torch.from_numpy(order)] = rows_in_order
        return features

    def _check_width(self, features: Tensor) -> None:
        """Raise a `UserError` if earlier features, of this or another set of samples, had another width."""
        self._widths.add(features.shape[1])
        if len(self._widths) > 1:
            raise UserError(
                f"model_args.encoder {self.name!r} gives {min(self._widths)} features for some samples and "
                f"{max(self._widths)} for others; it must give the same number for all"
            )

    def _encode_batch(self, function: BatchFunction, batch: Any, rows: npt.NDArray[np.int64]) -> Tensor:
        try:
            with torch.inference_mode():
                output = function(batch)
            features = torch.as_tensor(output).detach().to("cpu", torch.float32)
        except UserError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or "no reason given"
            raise UserError(
                f"model_args.encoder {self.name!r} fails on the samples with {type(error).__name__} ({reason}); use "
                "samples of the kind that it expects, or correct it"
            ) from error
        if features.ndim < 2 or len(features) != len(batch) or features[0].numel() == 0:
            raise UserError(
                f"model_args.encoder {self.name!r} gives an array of shape {tuple(features.shape)} for {len(batch)} "
                "samples; it must give one row of features per sample"
            )
        features = features.flatten(1)
        self._check_width(features)
        is_finite = features.isfinite().all(dim=1)
        if not bool(is_finite.all()):
            raise UserError(
                f"model_args.encoder {self.name!r} gives NaN or infinite features (first for sample "
                f"{int(rows[~is_finite.numpy()].min())}); check its weights and the samples"
            )
        # A tensor made in inference mode could not be trained on.
        return features.clone()


def make_digest(*parts: str | Path) -> str:
    """A hash of strings, and of the contents of files and folders, in this order."""
    total = hashlib.sha256()
    for part in parts:
        content = _hash_path(part) if isinstance(part, Path) else part.encode()
        total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()


def _hash_path(path: Path) -> bytes:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not _is_irrelevant(file, path))
        names = [file.relative_to(path).as_posix() for file in files]
        return "\n".join(f"{name} {_hash_path(file).hex()}" for name, file in zip(names, files, strict=True)).encode()
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise UserError(f"model_args.encoder: {str(path)!r} cannot be read ({error.strerror}); restore it") from None


def _is_irrelevant(file: Path, folder: Path) -> bool:
    """Descriptions, and what git and downloads leave in a folder."""
    return file.suffix == ".md" or any(part.startswith(".") for part in file.relative_to(folder).parts)


def _cache_key(encoder: Encoder, samples: Samples) -> str:
    """A hash of everything on which the features depend, rounding included."""
    total = hashlib.sha256()
    facts: Sequence[object] = (encoder.digest, encoder.device, torch.__version__, torch.get_num_threads())
    total.update(repr(facts).encode())
    if isinstance(samples, Tensor):
        total.update(repr((tuple(samples.shape), samples.dtype)).encode())
        total.update(samples.contiguous().numpy().data)
    else:
        for text in samples:
            content = str(text).encode("utf-8", "surrogatepass")
            total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()
