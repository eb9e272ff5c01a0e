"""After the last round, clients evaluate the model that predicts on samples that they never trained on.

What a client reports are integer counts: of its held-out samples by class, predicted class and confidence, and of all
of its samples by class and cell of the input space. `diagnostics/` draws the conclusions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..models.modes import eval_mode
from ..models.outputs import logit_rows
from ..models.state_dict import load_weights
from .input_cells import InputCells
from .types import Weights

#: Begins the names of the tables in a client's payload.
_PREFIX = "evaluation/"
#: The bins of a probability p, by log(p / (1 - p)): as fine near 0 and 1 as the confidences of networks need.
LOGIT_EDGES = np.linspace(-8.0, 8.0, 41)
#: No client has more weight than this multiple of the median client, whatever number of samples it claims.
_MAX_WEIGHT = 2.0


@dataclass(frozen=True, eq=False)
class EvaluationCounts:
    """What a client reports after the last round about the model that predicts.

    Attributes:
        confusion: held-out samples of each class (row) by predicted class (column), [C, C].
        confidence: those that are predicted wrong (row 0) and right (row 1), by bins of the largest probability,
            [2, bins].
        true_class: by bins of the probability of their true class, [bins].
        cells: all of the client's samples by division, class and cell of `InputCells`, [divisions, C, cells]; empty
            where the server's samples have no cells.
    """

    confusion: Tensor
    confidence: Tensor
    true_class: Tensor
    cells: Tensor

    @property
    def samples(self) -> int:
        """Held-out samples that were classified."""
        return int(self.confusion.sum())

    @classmethod
    def zeros(cls, classes: int, divisions: int = 0, cells: int = 0) -> EvaluationCounts:
        """Of no sample."""
        bins = len(LOGIT_EDGES) + 1
        shapes = ((classes, classes), (2, bins), (bins,), (divisions, classes, cells))
        return cls(*(torch.zeros(shape, dtype=torch.int64) for shape in shapes))

    def to_payload(self) -> dict[str, Tensor]:
        """As it is sent."""
        return {_PREFIX + each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_payload(
        cls, payload: Mapping[str, Tensor], classes: int, most: float, cells: tuple[int, int] | None = None
    ) -> EvaluationCounts | None:
        """The counts in a received payload; None where these are no counts of at most `most` samples.

        Args:
            payload: as it was received.
            classes: C.
            most: the largest possible number of samples.
            cells: the number of divisions of the input space, and of cells in each; None for those of the payload.
        """
        received = payload.get(_PREFIX + "cells")
        if received is None or received.ndim != 3:
            return None
        divisions, size = (received.shape[0], received.shape[2]) if cells is None else cells
        expected, tensors = cls.zeros(classes, divisions, size), {}
        for name, zeros in expected.to_payload().items():
            tensor = payload.get(name)
            if tensor is None or tensor.dtype != torch.int64 or tensor.shape != zeros.shape:
                return None
            # Entry by entry first: a sum of hostile numbers could overflow.
            if not bool(((tensor >= 0) & (tensor <= most)).all()):
                return None
            # In each division of the input space every sample counts once.
            if tensor.double().sum() > most * (divisions if tensor.ndim == 3 else 1):
                return None
            tensors[name.removeprefix(_PREFIX)] = tensor
        counts = cls(**tensors)
        right = int(counts.confusion.trace())
        is_consistent = counts.confidence.sum(dim=1).tolist() == [counts.samples - right, right]
        is_consistent &= int(counts.true_class.sum()) == counts.samples
        by_class = counts.cells.sum(dim=2)
        is_consistent &= bool((by_class == by_class[:1]).all())
        return counts if is_consistent else None

    def to_json(self) -> dict[str, Any]:
        """For validation.json."""
        content = {each.name: getattr(self, each.name).tolist() for each in fields(self) if each.name != "cells"}
        # Most are empty.
        cells = self.cells.to_sparse().coalesce()
        return {
            **content,
            "cells": {"shape": list(cells.shape), "index": cells.indices().tolist(), "count": cells.values().tolist()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EvaluationCounts:
        """From validation.json."""
        names = [each.name for each in fields(cls) if each.name != "cells"]
        cells = torch.zeros(content["cells"]["shape"], dtype=torch.int64)
        cells[tuple(torch.tensor(content["cells"]["index"], dtype=torch.int64))] = torch.tensor(
            content["cells"]["count"], dtype=torch.int64
        )
        return cls(**{name: torch.tensor(content[name], dtype=torch.int64) for name in names}, cells=cells)


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    weights: Weights,
    data: Iterable[Any],
    classes: int,
    all_data: Iterable[Any] = (),
    cells: InputCells | None = None,
) -> EvaluationCounts:
    """Evaluate weights on a client's held-out samples, and count all of its samples in the cells.

    Labels that are no class are not counted.
    """
    counts = EvaluationCounts.zeros(classes)
    if cells is not None:
        counts = replace(counts, cells=cells.count(all_data, classes))
    bins = counts.true_class.numel()
    for logits, labels in predictions_of(model, weights, data):
        labels = labels.flatten().long()
        rows = logit_rows(logits, len(logits)).double().softmax(dim=1)
        known = (labels >= 0) & (labels < classes)
        labels, rows = labels[known], rows[known]
        confidence, predicted = rows.max(dim=1)
        positions = (
            labels * classes + predicted,
            (predicted == labels).long() * bins + _bin_of(confidence),
            _bin_of(rows.gather(1, labels[:, None])[:, 0]),
        )
        for table, position in zip((counts.confusion, counts.confidence, counts.true_class), positions, strict=True):
            table += torch.bincount(position, minlength=table.numel()).reshape(table.shape)
    return counts


def clipped_logit(probabilities: Tensor) -> Tensor:
    """log(p / (1 - p)), within the range of the bins."""
    return torch.logit(probabilities.double()).clamp(float(LOGIT_EDGES[0]), float(LOGIT_EDGES[-1]))


def _bin_of(probabilities: Tensor) -> Tensor:
    return torch.bucketize(torch.logit(probabilities), torch.from_numpy(LOGIT_EDGES), right=True)


def predictions_of(model: nn.Module, weights: Weights, data: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits and the labels of each batch, on the CPU; `model` gets the weights."""
    load_weights(model, weights)
    device = next(model.parameters()).device
    with eval_mode(model):
        for inputs, labels in data:
            yield model(inputs.to(device)).cpu(), labels.cpu()


def weight_caps(samples: Sequence[int]) -> list[float]:
    """The factor of each client's counts, at most 1, so that none has more than twice the median client's weight.

    >>> weight_caps([10, 10, 40])
    [1.0, 1.0, 0.5]
    """
    most = _MAX_WEIGHT * statistics.median(samples) if samples else 0.0
    return [min(1.0, most / max(count, 1)) for count in samples]
