"""Preprocessing of samples: arrays to tensors, the encoder, and the standardization of features."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import RunSettings
from ..encoders import Encoder, Samples, load_encoder
from ..errors import UserError
from .shards import Batch, TensorShard
from .sources import Source
from .sources.csv_columns import Columns
from .sources.source import Array, is_text

InputKind = Literal["pixels", "numbers", "tokens", "text"]

#: Grey, colour, and colour with transparency: an axis of one of these sizes is taken as the channels.
CHANNELS = (1, 3, 4)

#: Every image of every dataset is normalized as (x/255 - MEAN) / DEVIATION. The same values for all datasets keep the
#: images of the clients and the server comparable, and nobody needs to know the mean of others.
MEAN, DEVIATION = 0.5, 0.5

#: A feature whose deviation is below this fraction of its mean is constant: the rest is rounding of float32.
_CONSTANT = 1e-6


def to_tensor(array: Array, tokens: bool = False) -> Tensor:
    """The samples [N, ...] as a new float32 tensor, images with their channels first.

    uint8 images [N, H, W] or [N, H, W, channels] become [N, channels, H, W], x/255 and then (x - 0.5)/0.5, so
    that black is -1 and white is 1. Other numbers keep their values; [N, H, W] gets a channel axis. An array
    of four axes is channels-last or channels-first by the axis whose size is one of `CHANNELS`; if neither or
    both are, uint8 is channels-last (as in image libraries) and the rest channels-first (as in torch). `tokens` are
    indices and become int64.

    >>> to_tensor(np.array([[[0, 255]]], dtype=np.uint8)).tolist()
    [[[[-1.0, 1.0]]]]
    """
    if tokens:
        return torch.from_numpy(array.astype(np.int64))
    is_uint8 = array.dtype == np.uint8
    if array.ndim == 4 and _is_channels_last(array.shape[1], array.shape[3], is_uint8):
        array = array.transpose(0, 3, 1, 2)
    # One copy, in its final order: only the bytes and the floats are in memory.
    tensor = torch.from_numpy(array.astype(np.float32, order="C"))
    if is_uint8 and array.ndim >= 3:
        tensor = tensor.div_(255).sub_(MEAN).div_(DEVIATION)
    return tensor.unsqueeze(1) if tensor.ndim == 3 else tensor


def to_samples(array: Array, tokens: bool = False) -> Samples:
    """The samples as an encoder reads them: texts [N] unchanged, others as `to_tensor` returns them."""
    return array if is_text(array) else to_tensor(array, tokens)


def load_run_encoder(settings: RunSettings, kind: InputKind) -> Encoder | None:
    """The run's encoder for samples of this kind, with the run's threads and device; None if it has none."""
    if settings.model.encoder is not None and settings.common.training_type == "cross_device":
        raise UserError("model_args.encoder: devices read their own samples and do not encode them; leave it out")
    threads = settings.device.threads
    if settings.model.encoder is not None and threads is not None and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(threads)
    uses_gpu = settings.device.using_gpu and torch.cuda.is_available()
    device = f"cuda:{settings.device.gpu_id}" if uses_gpu else "cpu"
    encoder = load_encoder(settings.model, settings.data.download, device)
    if encoder is None and kind == "text":
        raise UserError(
            "the samples are texts, which need an encoder; set model_args.encoder, for example "
            "sentence-transformers:FOLDER"
        )
    return encoder


def encode_samples(encoder: Encoder | None, samples: Samples) -> Tensor:
    """The features [N, D] of the samples; without an encoder the samples themselves."""
    if encoder is not None:
        return encoder(samples)
    assert isinstance(samples, Tensor)
    return samples


def reject_encoder(settings: RunSettings, what: str) -> None:
    """Raise a `UserError` if the settings name an encoder, since `what` is not encoded."""
    if settings.model.encoder is not None:
        raise UserError(
            f"model_args.encoder is set but {what} is not encoded by it; leave it out and pass features, or pass "
            "arrays or a mrtf_fedml.data.Source"
        )


def _is_channels_last(second: int, last: int, default: bool) -> bool:
    if (second in CHANNELS) == (last in CHANNELS):
        return default
    return last in CHANNELS


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Brings each feature to mean 0 and standard deviation 1: (x - mean) / deviation.

    Attributes:
        mean: of each feature, in the shape of a sample, float64.
        deviation: the same; 0 for a constant feature, which becomes 0, since a model cannot learn from it and the
            server's samples may have any value there.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, batches: Iterable[Tensor]) -> Standardizer:
        """From batches of samples [N, ...], in two passes, since one pass loses small deviations.

        >>> standardizer = Standardizer.fit([torch.tensor([[1.0, 7.0], [3.0, 7.0]])])
        >>> standardizer(torch.tensor([[5.0, 9.0]])).tolist()
        [[3.0, 0.0]]
        """
        parts = [batch.double() for batch in batches]
        count = sum(len(part) for part in parts)
        mean = torch.stack([part.sum(dim=0) for part in parts]).sum(dim=0) / count
        squares = torch.stack([((part - mean) ** 2).sum(dim=0) for part in parts]).sum(dim=0)
        deviation = (squares / count).sqrt()
        return cls(mean, torch.where(deviation > _CONSTANT * mean.abs(), deviation, torch.zeros_like(deviation)))

    def __call__(self, inputs: Tensor) -> Tensor:
        """The standardized inputs [N, ...], as new float32."""
        varies = self.deviation > 0
        divisor = torch.where(varies, self.deviation, torch.ones_like(self.deviation))
        standardized = (inputs.double() - self.mean) / divisor
        return torch.where(varies, standardized, torch.zeros_like(standardized)).float()


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """The preprocessing of a run's samples, to apply it to more samples of the same kind.

    Attributes:
        kind: `pixels` are uint8 images mapped to [-1, 1]; `numbers` keep their values; `tokens` are indices; `text`
            are strings.
        standardizer: standardizes the features; None if they are not standardized.
        features: the names of a table's features, in the model's order; None without names.
        columns: how the columns of a file become features; None without such a file.
        encoder: turns the samples into the model's inputs, before the standardization; None without one.
        sample_shape: with an encoder, the shape of a sample before it.
    """

    kind: InputKind = "numbers"
    standardizer: Standardizer | None = None
    features: list[str] | None = field(default=None, repr=False)
    columns: Columns | None = field(default=None, repr=False)
    encoder: Encoder | None = None
    sample_shape: tuple[int, ...] = ()

    def apply(self, samples: Samples) -> Tensor:
        """The model's inputs [N, ...] for samples as `to_samples` returns them."""
        inputs = encode_samples(self.encoder, samples)
        return inputs if self.standardizer is None else self.standardizer(inputs)

    def to_json(self) -> dict[str, Any]:
        """The preprocessing as JSON values."""
        mean = deviation = None
        if self.standardizer is not None:
            mean = self.standardizer.mean.flatten().tolist()
            deviation = self.standardizer.deviation.flatten().tolist()
        return {
            "kind": self.kind,
            "mean": mean,
            "deviation": deviation,
            "features": self.features,
            "columns": None if self.columns is None else self.columns.to_json(),
            "encoder": None
            if self.encoder is None
            else {"name": self.encoder.name, "digest": self.encoder.digest, "sample_shape": list(self.sample_shape)},
        }

    @classmethod
    def from_json(
        cls, values: Mapping[str, Any], input_shape: tuple[int, ...], encoder: Encoder | None = None
    ) -> Preprocessing:
        """The inverse of `to_json`; `encoder` is the one that the values name."""
        standardizer = None
        if values["mean"] is not None:
            parts = [torch.tensor(values[key], dtype=torch.float64) for key in ("mean", "deviation")]
            standardizer = Standardizer(*(part.reshape(input_shape) for part in parts))
        columns = values.get("columns")
        return cls(
            values["kind"],
            standardizer,
            values["features"],
            None if columns is None else Columns(**columns),
            encoder,
            tuple((values.get("encoder") or {}).get("sample_shape", ())),
        )


def should_standardize(
    settings: RunSettings, samples: Samples, kind: InputKind, encoder: Encoder | None = None
) -> bool:
    """Whether samples [N, ...] of this kind are standardized.

    With `standardize: auto` tables and the features of an encoder are, images are not.
    """
    standardize = settings.data.standardize
    if encoder is not None:
        return standardize is not False
    assert isinstance(samples, Tensor)
    inputs = samples
    if settings.common.training_type == "cross_device":
        # The devices read their own samples, which the server cannot change.
        return False
    if standardize == "auto":
        return kind == "numbers" and inputs.ndim == 2 and inputs.is_floating_point()
    if standardize and (kind == "tokens" or not inputs.is_floating_point()):
        raise UserError("data_args.standardize is true but the samples are indices of letters or words; leave it out")
    return standardize


def fit_preprocessing(
    source: Source,
    parts: list[npt.NDArray[np.int64]],
    settings: RunSettings,
    encoder: Encoder | None,
    client_inputs: Callable[[], Tensor],
    server_inputs: Callable[[], Tensor],
) -> Preprocessing:
    """The preprocessing of a source; the features are standardized by the samples of the participating clients.

    It depends on neither the order of the clients nor any label, so every party with the source computes the same.
    Under differential privacy (`dp_args`) the server's inputs are used instead: exact sums over clients are not in
    the privacy budget.

    Args:
        source: the samples.
        parts: each client's rows.
        settings: of the run.
        encoder: of the run.
        client_inputs: the inputs of all rows of `x_train`, encoded.
        server_inputs: the server's inputs, encoded.
    """
    kind = input_kind(source)
    example = to_samples(source.x_train[:1], source.tokens)
    standardizer = None
    if should_standardize(settings, example, kind, encoder):
        rows = np.sort(np.concatenate(parts))
        standardizer = Standardizer.fit(
            [server_inputs() if settings.privacy.is_active else client_inputs()[torch.from_numpy(rows)]]
        )
    shape = tuple(example.shape[1:])
    return Preprocessing(kind, standardizer, source.features, source.columns, encoder, shape)


def input_kind(source: Source) -> InputKind:
    """The kind of a source's numbers, as `to_tensor` treats them."""
    if source.tokens:
        return "tokens"
    if is_text(source.x_train):
        return "text"
    return "pixels" if source.x_train.dtype == np.uint8 and source.x_train.ndim >= 3 else "numbers"


class StandardizedLoader:
    """A user's own loader of (x, y) batches, whose x are standardized as they are drawn."""

    def __init__(self, batches: Any, standardizer: Standardizer) -> None:
        self.batches = batches
        self.standardizer = standardizer
        self.batch_size = getattr(batches, "batch_size", None)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        for inputs, labels in self.batches:
            yield self.standardizer(torch.as_tensor(inputs)), torch.as_tensor(labels)


def standardize_entry(entry: Any, standardizer: Standardizer) -> Any:
    """A client's data, standardized: a shard as a new shard, another loader as it is drawn; None stays None."""
    if entry is None:
        return None
    if isinstance(entry, TensorShard):
        return entry.map_inputs(standardizer)
    return StandardizedLoader(entry, standardizer)
