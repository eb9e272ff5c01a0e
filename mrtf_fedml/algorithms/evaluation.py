"""After the last round, clients evaluate the model that predicts on samples that they never trained on.

What a client reports are integer counts of its held-out samples. `diagnostics/accuracy_estimate.py` draws the
conclusions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..models.modes import eval_mode
from ..models.outputs import logit_rows
from ..models.state_dict import load_weights
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
    """

    confusion: Tensor
    confidence: Tensor
    true_class: Tensor

    @property
    def samples(self) -> int:
        """Held-out samples that were classified."""
        return int(self.confusion.sum())

    @classmethod
    def zeros(cls, classes: int) -> EvaluationCounts:
        """Of no sample."""
        bins = len(LOGIT_EDGES) + 1
        shapes = ((classes, classes), (2, bins), (bins,))
        return cls(*(torch.zeros(shape, dtype=torch.int64) for shape in shapes))

    def to_payload(self) -> dict[str, Tensor]:
        """As it is sent."""
        return {_PREFIX + each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Tensor], classes: int, most: float) -> EvaluationCounts | None:
        """The counts in a received payload; None where these are no counts of at most `most` samples."""
        expected, tensors = cls.zeros(classes), {}
        for name, zeros in expected.to_payload().items():
            tensor = payload.get(name)
            if tensor is None or tensor.dtype != torch.int64 or tensor.shape != zeros.shape:
                return None
            # Entry by entry first: a sum of hostile numbers could overflow.
            if not bool(((tensor >= 0) & (tensor <= most)).all()) or tensor.double().sum() > most:
                return None
            tensors[name.removeprefix(_PREFIX)] = tensor
        counts = cls(**tensors)
        right = int(counts.confusion.trace())
        is_consistent = counts.confidence.sum(dim=1).tolist() == [counts.samples - right, right]
        return counts if is_consistent and int(counts.true_class.sum()) == counts.samples else None

    def to_json(self) -> dict[str, Any]:
        """For validation.json."""
        return {each.name: getattr(self, each.name).tolist() for each in fields(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EvaluationCounts:
        """From validation.json."""
        return cls(**{each.name: torch.tensor(content[each.name], dtype=torch.int64) for each in fields(cls)})


@torch.inference_mode()
def evaluate(model: nn.Module, weights: Weights, data: Iterable[Any], classes: int) -> EvaluationCounts:
    """Evaluate weights on a client's held-out samples; labels that are no class are not counted."""
    counts = EvaluationCounts.zeros(classes)
    bins = counts.true_class.numel()
    for logits, labels in predictions_of(model, weights, data):
        labels = labels.flatten().long()
        rows = logit_rows(logits, len(logits)).double().softmax(dim=1)
        known = (labels >= 0) & (labels < classes)
        labels, rows = labels[known], rows[known]
        confidence, predicted = rows.max(dim=1)
        cells = (
            labels * classes + predicted,
            (predicted == labels).long() * bins + _bin_of(confidence),
            _bin_of(rows.gather(1, labels[:, None])[:, 0]),
        )
        for table, cell in zip((counts.confusion, counts.confidence, counts.true_class), cells, strict=True):
            table += torch.bincount(cell, minlength=table.numel()).reshape(table.shape)
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
