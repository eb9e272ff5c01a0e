"""`server_dataset`: the server's set from another source than the clients', brought to the clients' shape."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..settings import DataSettings
from .fewer import evenly_spaced
from .names import original, printable
from .sources import Source, load_source
from .sources.images import folder_of, read_server_folder
from .sources.memory import memory_of
from .sources.pictures import Format
from .sources.source import Labels
from .tensors import to_tensor

logger = logging.getLogger("mrtf_fedml")

#: How bright red, green and blue look (ITU-R BT.601), as every image library weighs them.
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True, eq=False)
class ServerPart:
    """The server's inputs [M, ...], their true classes for an examiner alone, and their ids."""

    inputs: Tensor
    labels: Labels | None = field(repr=False)
    ids: list[str]


def server_part(source: Source, settings: DataSettings, clients_shape: tuple[int, ...]) -> ServerPart:
    """The server's set, or `server_samples` of it: that of `source`, or of `server_dataset` in the clients' shape."""
    part = shortened(_whole_server_part(source, settings, clients_shape), settings)
    # Those that are left may all be among the few whose class is not known.
    return replace(part, labels=None) if part.labels is not None and (part.labels < 0).all() else part


def shortened(part: ServerPart, settings: DataSettings) -> ServerPart:
    """`server_samples` of the server's set, where so many are asked for."""
    wanted, there = settings.server_samples, len(part.inputs)
    if wanted is None:
        return part
    rows = evenly_spaced("server_samples", wanted, there, f"the server's set has only {there}")
    labels = None if part.labels is None else part.labels[rows]
    return ServerPart(part.inputs[torch.from_numpy(rows)], labels, [part.ids[row] for row in rows])


def _whole_server_part(source: Source, settings: DataSettings, clients_shape: tuple[int, ...]) -> ServerPart:
    name = settings.server_dataset
    # Two files of arrays are two datasets, though both are called npz.
    if name is None or (name == settings.dataset and not (name == "npz" and settings.server_file)):
        return ServerPart(to_tensor(source.x_test, source.tokens), source.y_test, source.ids)
    if name == "images":
        return _images(source, settings, clients_shape)
    if name == "csv":
        raise UserError(
            "data_args.server_dataset csv needs dataset csv, whose columns the server's have to match; set both"
        )
    own_file = settings.server_file or settings.data_file
    other = load_source(replace(settings, dataset=name, data_file=own_file, server_dataset=None))
    if other.class_num != source.class_num:
        raise UserError(
            f"data_args.server_dataset {name} has {other.class_num} classes but {settings.dataset} has "
            f"{source.class_num}; take datasets of the same classes"
        )
    if other.class_names != source.class_names:
        logger.warning("%s and %s name their classes differently; they are matched by number", name, source.name)
    _check_kinds(source, other, settings)
    inputs = reconciled(to_tensor(other.x_test, other.tokens), clients_shape, name)
    return ServerPart(inputs, other.y_test, other.ids)


def _images(source: Source, settings: DataSettings, clients_shape: tuple[int, ...]) -> ServerPart:
    """A flat folder of the user's own images beside the clients of any image dataset."""
    if len(clients_shape) != 3 or clients_shape[0] not in (1, 3) or source.x_train.dtype != np.uint8:
        raise UserError(f"data_args.server_dataset is images but {source.name} holds none; take a dataset of images")
    channels, height, width = clients_shape
    folder = folder_of(settings, "server_file")
    # The classes' names are printable by now, and those of folders need not be.
    names = [original(name) for name in source.class_names]
    picture_format = Format(height, width, channels == 1)
    pixels, labels, ids = read_server_folder(folder, picture_format, names, memory_of(settings))
    return ServerPart(to_tensor(pixels), labels, [printable(name) for name in ids])


def _check_kinds(source: Source, other: Source, settings: DataSettings) -> None:
    kinds = [part.x_train.dtype == np.uint8 for part in (source, other)]
    if source.tokens != other.tokens or kinds[0] != kinds[1]:
        raise UserError(
            f"data_args.server_dataset {settings.server_dataset} holds another kind of sample than "
            f"{settings.dataset}; take two datasets of images, or two of numbers"
        )


def reconciled(inputs: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """The inputs [M, ...] with samples of `shape`: images are resized, grey is repeated, colour becomes luminance.

    >>> reconciled(torch.zeros(5, 1, 16, 16), (3, 28, 28), "usps").shape
    torch.Size([5, 3, 28, 28])
    """
    own = tuple(inputs.shape[1:])
    if own == shape:
        return inputs
    if len(own) != 3 or len(shape) != 3 or (own[0] != shape[0] and {own[0], shape[0]} != {1, 3}):
        raise UserError(
            f"a sample of data_args.server_dataset {name} has shape {own} and one of the clients' {shape}, and only "
            "images of one or three channels can be fitted to each other; bring them to one shape"
        )
    # In the cheaper of the two orders, and never more than one channel too many in memory.
    if own[0] == 3 and shape[0] == 1:
        inputs = (inputs * torch.tensor(LUMINANCE).reshape(1, 3, 1, 1)).sum(dim=1, keepdim=True)
    if own[1:] != shape[1:]:
        inputs = torch.nn.functional.interpolate(inputs, size=shape[1:], mode="bilinear", antialias=True)
    if own[0] == 1 and shape[0] == 3:
        inputs = inputs.repeat(1, 3, 1, 1)
    return inputs
