"""The server's set out of whatever a FedML dataset has for `test_global`, read once and in its own order."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler

from ..errors import UserError
from ..randomness import forked

logger = logging.getLogger("mrtf_fedml")

DEFAULT_BATCH_SIZE = 64


@dataclass(frozen=True, eq=False)
class ServerSet:
    """Inputs [M, ...] and, where the batches gave classes, labels for an examiner alone.

    Labels are [M], one a sample, or [M * T], one a position of a sample, row m * T + t.
    """

    inputs: Tensor
    labels: Tensor | None = field(repr=False)
    batch_size: int


def read_server_set(test_global: Any) -> ServerSet:
    """Every batch of `test_global`: a DataLoader, a list of (x, y) batches, or anything that iterates so.

    A DataLoader is read in its dataset's order and to the last sample, whether or not it shuffles or drops a
    short last batch: predictions must line up with the user's own list. Where reading draws random numbers,
    it draws the same ones every time and leaves the global state as it was.
    """
    if test_global is None:
        raise UserError("the dataset's test_global is None, so the server has nothing to label; give it a loader")
    inputs: list[Tensor] = []
    labels: list[Tensor | None] = []
    with forked(0, "server set"):
        for batch in _in_order(test_global):
            x, y = _pair(batch)
            inputs.append(x)
            labels.append(y)
    if not sum(len(x) for x in inputs):
        raise UserError("the dataset's test_global is empty, so the server has nothing to label; give it samples")
    shapes = {tuple(x.shape[1:]) for x in inputs}
    if len(shapes) > 1:
        raise UserError(
            f"the batches of test_global have inputs of different shapes ({sorted(shapes)}); bring all to one shape"
        )
    joined = torch.cat(inputs)
    if joined.is_floating_point() and not joined.isfinite().all():
        raise UserError("the inputs of test_global hold NaN or infinite values; remove or fill them")
    return ServerSet(joined, _joined_labels(labels), getattr(test_global, "batch_size", None) or len(inputs[0]))


def _in_order(test_global: Any) -> Iterable[Any]:
    if not isinstance(test_global, DataLoader):
        if not isinstance(test_global, Iterable):
            raise UserError(
                f"the dataset's test_global is a {type(test_global).__name__}; give a DataLoader or a list "
                "of (x, y) batches"
            )
        return test_global
    dataset = test_global.dataset
    if isinstance(test_global.sampler, SubsetRandomSampler):
        dataset = Subset(dataset, sorted(test_global.sampler.indices))
    batch_size = test_global.batch_size
    if batch_size is None and test_global.batch_sampler is not None:
        # A batch sampler of the user's own hides the size and decides the order: only its grouping is lost
        # here.
        batch_size = DEFAULT_BATCH_SIZE
    return DataLoader(dataset, batch_size=batch_size, collate_fn=test_global.collate_fn)


def _pair(batch: Any) -> tuple[Tensor, Tensor | None]:
    if isinstance(batch, Tensor):
        return _tensor(batch), None
    if not isinstance(batch, tuple | list) or not 1 <= len(batch) <= 2:
        raise UserError(
            f"a batch of test_global is a {type(batch).__name__} and not a pair (x, y); give pairs, with y = "
            "-1 where labels are not known"
        )
    x = _tensor(batch[0])
    if len(batch) == 1 or batch[1] is None:
        return x, None
    y = _tensor(batch[1])
    if len(y) != len(x):
        raise UserError(f"a batch of test_global has {len(x)} inputs but {len(y)} labels; give one label per sample")
    return x, y


def _tensor(given: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"a batch of test_global holds a {type(given).__name__} that is no tensor ({error}); give x and "
            "y as tensors or arrays"
        ) from error
    if tensor.ndim == 0:
        raise UserError("test_global gives single samples; give batches (a DataLoader with a batch_size)")
    return tensor


def _joined_labels(labels: list[Tensor | None]) -> Tensor | None:
    """One int64 class a sample or a position, or None where there is no label to score against."""
    known = [y for y in labels if y is not None]
    if len(known) < len(labels):
        return None
    flat = [y.squeeze(1) if y.ndim == 2 and y.shape[1] == 1 else y for y in known]
    if all(y.ndim == 2 and not y.is_floating_point() for y in flat) and len({y.shape[1] for y in flat}) == 1:
        flat = [y.flatten() for y in flat]
    if any(y.ndim != 1 or (y.is_floating_point() and not torch.equal(y, y.floor())) for y in flat):
        logger.warning("the labels of test_global are not one class a sample: the server's set will not be scored")
        return None
    joined = torch.cat(flat).long()
    return joined if bool((joined >= 0).any()) else None
