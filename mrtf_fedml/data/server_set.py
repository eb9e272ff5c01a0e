"""The server's unlabelled set: from a source, from `server_dataset`, or from FedML's `test_global`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler

from ..config import DataSettings
from ..encoders import Samples
from ..errors import UserError
from ..rng import fork_rng
from .formatting import escape, unescape
from .preprocessing import to_samples, to_tensor
from .sources import Source, load_source
from .sources.files import memory_limit
from .sources.images import ImageFormat, image_folder, read_server_folder
from .sources.source import Labels, is_text
from .subsampling import evenly_spaced_rows

logger = logging.getLogger("mrtf_fedml")

DEFAULT_BATCH_SIZE = 64

#: Weights of red, green and blue in the luminance (ITU-R BT.601).
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True, eq=False)
class ServerSet:
    """The server's samples [M, ...], their true classes (only for a `SealedEvaluator`) and their ids."""

    inputs: Samples
    labels: Labels | None = field(repr=False)
    ids: list[str]


def load_server_set(source: Source, settings: DataSettings, clients_shape: tuple[int, ...]) -> ServerSet:
    """The server's set of `source` or of `server_dataset`, in the clients' shape, reduced to `server_samples`."""
    server_set = subsample_server_set(_load_whole_set(source, settings, clients_shape), settings)
    # The remaining samples may all be without a known class.
    if server_set.labels is not None and (server_set.labels < 0).all():
        return replace(server_set, labels=None)
    return server_set


def subsample_server_set(server_set: ServerSet, settings: DataSettings) -> ServerSet:
    """`server_samples` of the server's set, if that is set."""
    wanted, available = settings.server_samples, len(server_set.inputs)
    if wanted is None:
        return server_set
    rows = evenly_spaced_rows("server_samples", wanted, available, f"the server's set has only {available}")
    labels = None if server_set.labels is None else server_set.labels[rows]
    return ServerSet(server_set.inputs[rows], labels, [server_set.ids[row] for row in rows])


def _load_whole_set(source: Source, settings: DataSettings, clients_shape: tuple[int, ...]) -> ServerSet:
    name = settings.server_dataset
    # Two .npz files are two datasets, though both have the name npz.
    if name is None or (name == settings.dataset and not (name == "npz" and settings.server_file)):
        return ServerSet(to_samples(source.x_test, source.tokens), source.y_test, source.ids)
    if name == "images":
        return _load_image_folder(source, settings, clients_shape)
    if name == "csv":
        raise UserError("data_args.server_dataset csv needs data_args.dataset csv, with the same columns; set both")
    data_file = settings.server_file or settings.data_file
    other = load_source(replace(settings, dataset=name, data_file=data_file, server_dataset=None))
    if other.class_num != source.class_num:
        raise UserError(
            f"data_args.server_dataset {name} has {other.class_num} classes but {settings.dataset} has "
            f"{source.class_num}; use datasets of the same classes"
        )
    if other.class_names != source.class_names:
        logger.warning("%s and %s name their classes differently; they are matched by number", name, source.name)
    _check_same_kind(source, other, settings)
    samples = to_samples(other.x_test, other.tokens)
    inputs = match_input_shape(samples, clients_shape, name) if isinstance(samples, Tensor) else samples
    return ServerSet(inputs, other.y_test, other.ids)


def _load_image_folder(source: Source, settings: DataSettings, clients_shape: tuple[int, ...]) -> ServerSet:
    """A folder of the user's images as the server's set of an image dataset."""
    if len(clients_shape) != 3 or clients_shape[0] not in (1, 3) or source.x_train.dtype != np.uint8:
        raise UserError(f"data_args.server_dataset is images but {source.name} has no images; use a dataset of images")
    channels, height, width = clients_shape
    folder = image_folder(settings, "server_file")
    # The class names are escaped by now, the names of folders are not.
    class_names = [unescape(name) for name in source.class_names]
    image_format = ImageFormat(height, width, channels == 1)
    pixels, labels, ids = read_server_folder(folder, image_format, class_names, memory_limit(settings))
    return ServerSet(to_tensor(pixels), labels, [escape(name) for name in ids])


def _check_same_kind(source: Source, other: Source, settings: DataSettings) -> None:
    kinds = [(part.x_train.dtype == np.uint8, is_text(part.x_train)) for part in (source, other)]
    if source.tokens != other.tokens or kinds[0] != kinds[1]:
        raise UserError(
            f"data_args.server_dataset {settings.server_dataset} has another kind of sample than "
            f"{settings.dataset}; use two datasets of images, or two of numbers"
        )


def match_input_shape(inputs: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """The inputs [M, ...] with samples of `shape`: images are resized, grey is repeated, colour becomes luminance.

    >>> match_input_shape(torch.zeros(5, 1, 16, 16), (3, 28, 28), "usps").shape
    torch.Size([5, 3, 28, 28])
    """
    own = tuple(inputs.shape[1:])
    if own == shape:
        return inputs
    if len(own) != 3 or len(shape) != 3 or (own[0] != shape[0] and {own[0], shape[0]} != {1, 3}):
        raise UserError(
            f"a sample of data_args.server_dataset {name} has shape {own} and a sample of the clients {shape}, and "
            "only images of one or three channels can be converted; bring them to one shape"
        )
    # Resize with the smaller number of channels, to save time and memory.
    if own[0] == 3 and shape[0] == 1:
        inputs = (inputs * torch.tensor(LUMINANCE).reshape(1, 3, 1, 1)).sum(dim=1, keepdim=True)
    if own[1:] != shape[1:]:
        inputs = torch.nn.functional.interpolate(inputs, size=shape[1:], mode="bilinear", antialias=True)
    if own[0] == 1 and shape[0] == 3:
        inputs = inputs.repeat(1, 3, 1, 1)
    return inputs


@dataclass(frozen=True, eq=False)
class ServerBatches:
    """The content of FedML's `test_global`: inputs [M, ...] and labels for a `SealedEvaluator`, if it has classes.

    Labels are [M], one per sample, or [M * T], one per position of a sample, in row m * T + t.
    """

    inputs: Tensor
    labels: Tensor | None = field(repr=False)
    batch_size: int


def read_test_global(test_global: Any) -> ServerBatches:
    """Every batch of `test_global`: a DataLoader, a list of (x, y) batches, or another iterable of them.

    A DataLoader is read completely and in the order of its dataset, even if it shuffles or drops a short last batch:
    predictions must match the user's own list. If reading draws random numbers, it draws the same ones every time and
    restores the global state.
    """
    if test_global is None:
        raise UserError("the dataset's test_global is None, so the server has nothing to label; pass a loader")
    inputs: list[Tensor] = []
    labels: list[Tensor | None] = []
    with fork_rng(0, "server set"):
        for batch in _iterate_in_order(test_global):
            x, y = _split_batch(batch)
            inputs.append(x)
            labels.append(y)
    if not sum(len(x) for x in inputs):
        raise UserError("the dataset's test_global is empty, so the server has nothing to label; pass samples")
    shapes = {tuple(x.shape[1:]) for x in inputs}
    if len(shapes) > 1:
        raise UserError(
            f"the batches of test_global have inputs of different shapes ({sorted(shapes)}); bring all to one shape"
        )
    joined = torch.cat(inputs)
    if joined.is_floating_point() and not joined.isfinite().all():
        raise UserError("the inputs of test_global hold NaN or infinite values; remove or fill them")
    return ServerBatches(joined, _join_labels(labels), getattr(test_global, "batch_size", None) or len(inputs[0]))


def _iterate_in_order(test_global: Any) -> Iterable[Any]:
    if not isinstance(test_global, DataLoader):
        if not isinstance(test_global, Iterable):
            raise UserError(
                f"the dataset's test_global is a {type(test_global).__name__}; pass a DataLoader or a list "
                "of (x, y) batches"
            )
        return test_global
    dataset = test_global.dataset
    if isinstance(test_global.sampler, SubsetRandomSampler):
        dataset = Subset(dataset, sorted(test_global.sampler.indices))
    batch_size = test_global.batch_size
    if batch_size is None and test_global.batch_sampler is not None:
        # A user's own batch sampler has no size and determines the order; only its grouping is lost here.
        batch_size = DEFAULT_BATCH_SIZE
    return DataLoader(dataset, batch_size=batch_size, collate_fn=test_global.collate_fn)


def _split_batch(batch: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(batch, Tensor):
        return _to_batch_tensor(batch), None
    if not isinstance(batch, tuple | list) or not 1 <= len(batch) <= 2:
        raise UserError(
            f"a batch of test_global is a {type(batch).__name__} and not a pair (x, y); pass pairs, with y = "
            "-1 where labels are not known"
        )
    x = _to_batch_tensor(batch[0])
    if len(batch) == 1 or batch[1] is None:
        return x, None
    y = _to_batch_tensor(batch[1])
    if len(y) != len(x):
        raise UserError(f"a batch of test_global has {len(x)} inputs but {len(y)} labels; pass one label per sample")
    return x, y


def _to_batch_tensor(value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"a batch of test_global holds a {type(value).__name__} that is not a tensor ({error}); pass x and "
            "y as tensors or arrays"
        ) from error
    if tensor.ndim == 0:
        raise UserError("test_global yields single samples; pass batches (a DataLoader with a batch_size)")
    return tensor


def _join_labels(labels: list[Tensor | None]) -> Tensor | None:
    """One int64 class per sample or position, or None if there is no label to score with."""
    known = [y for y in labels if y is not None]
    if len(known) < len(labels):
        return None
    flat = [y.squeeze(1) if y.ndim == 2 and y.shape[1] == 1 else y for y in known]
    if all(y.ndim == 2 and not y.is_floating_point() for y in flat) and len({y.shape[1] for y in flat}) == 1:
        flat = [y.flatten() for y in flat]
    if any(y.ndim != 1 or (y.is_floating_point() and not torch.equal(y, y.floor())) for y in flat):
        logger.warning("the labels of test_global are not one class per sample: the server's set is not scored")
        return None
    joined = torch.cat(flat).long()
    return joined if bool((joined >= 0).any()) else None
