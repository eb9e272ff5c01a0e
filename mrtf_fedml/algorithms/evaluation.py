"""After the last round, clients evaluate the model that predicts on samples that they never trained on.

What a client reports are integer counts: of its held-out samples by class, predicted class and confidence, and of all
of its samples by class and cell of the input space. `diagnostics/` draws the conclusions.
"""

from __future__ import annotations

import math
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
from .input_cells import FEATURE_BINS, InputCells
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
        confidence: by predicted class, whether that is right (1) or wrong (0), and bins of the largest probability,
            [C, 2, bins].
        true_class: by bins of the probability of their true class, [bins].
        cells: all of the client's samples by division, class and cell of `InputCells`, [divisions, C, cells]; empty
            where the server's samples have no cells.
        features: all of its samples by feature, class and bin of the feature, [features, C, bins]; empty likewise.
    """

    confusion: Tensor
    confidence: Tensor
    true_class: Tensor
    cells: Tensor
    features: Tensor

    @property
    def samples(self) -> int:
        """Held-out samples that were classified."""
        return int(self.confusion.sum())

    @classmethod
    def zeros(cls, classes: int, input_cells: InputCells | None = None) -> EvaluationCounts:
        """Of no sample."""
        bins = len(LOGIT_EDGES) + 1
        divisions, cells = (0, 0) if input_cells is None else input_cells.shape
        features = 0 if input_cells is None else len(input_cells.quartiles)
        shapes = (
            (classes, classes),
            (classes, 2, bins),
            (bins,),
            (divisions, classes, cells),
            (features, classes, FEATURE_BINS),
        )
        return cls(*(torch.zeros(shape, dtype=torch.int64) for shape in shapes))

    def to_payload(self) -> dict[str, Tensor]:
        """As it is sent."""
        return {_PREFIX + each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Tensor]) -> EvaluationCounts | None:
        """The counts in a received payload, whatever they are; None where one is missing."""
        names = [each.name for each in fields(cls)]
        if any(_PREFIX + name not in payload for name in names):
            return None
        return cls(**{name: payload[_PREFIX + name] for name in names})

    def is_possible(self, classes: int, most: float, input_cells: InputCells | None = None) -> bool:
        """Whether these can be counts of at most `most` samples of so many classes, in these cells."""
        expected = EvaluationCounts.zeros(classes, input_cells)
        for each in fields(self):
            table = getattr(self, each.name)
            if table.dtype != torch.int64 or table.shape != getattr(expected, each.name).shape:
                return False
            # Entry by entry first: a sum of hostile numbers could overflow.
            if not bool(((table >= 0) & (table <= most)).all()):
                return False
            # A sample counts once in each division of the input space, and in each feature.
            times = len(table) if each.name in ("cells", "features") else 1
            if table.double().sum() > most * max(1, times):
                return False
        right = self.confusion.diagonal()
        by_outcome = torch.stack([self.confusion.sum(dim=0) - right, right], dim=1)
        by_class = torch.cat([self.cells.sum(dim=2), self.features.sum(dim=2)])
        return (
            torch.equal(self.confidence.sum(dim=2), by_outcome)
            and int(self.true_class.sum()) == self.samples
            and bool((by_class == by_class[:1]).all())
        )

    def to_json(self) -> dict[str, Any]:
        """For validation.json: each table's shape and entries; without those that are 0, where most are."""
        content = {}
        for each in fields(self):
            table = getattr(self, each.name)
            entries, where = table.flatten(), table.flatten().nonzero().flatten()
            is_sparse = 3 * len(where) < len(entries)
            content[each.name] = {
                "shape": list(table.shape),
                "count": (entries[where] if is_sparse else entries).tolist(),
            }
            if is_sparse:
                content[each.name]["index"] = where.tolist()
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EvaluationCounts:
        """From validation.json."""
        tables = {}
        for each in fields(cls):
            entries = content[each.name]
            table = torch.zeros(math.prod(entries["shape"]), dtype=torch.int64)
            where = torch.tensor(entries["index"], dtype=torch.int64) if "index" in entries else slice(None)
            table[where] = torch.tensor(entries["count"], dtype=torch.int64)
            tables[each.name] = table.reshape(entries["shape"])
        return cls(**tables)


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
        by_cell, by_bin = cells.count(all_data, classes)
        counts = replace(counts, cells=by_cell, features=by_bin)
    bins = counts.true_class.numel()
    for logits, labels in predictions_of(model, weights, data):
        labels = labels.flatten().long()
        rows = logit_rows(logits, len(logits)).double().softmax(dim=1)
        known = (labels >= 0) & (labels < classes)
        labels, rows = labels[known], rows[known]
        confidence, predicted = rows.max(dim=1)
        positions = (
            labels * classes + predicted,
            (2 * predicted + (predicted == labels)) * bins + logit_bin(confidence),
            logit_bin(rows.gather(1, labels[:, None])[:, 0]),
        )
        for table, position in zip((counts.confusion, counts.confidence, counts.true_class), positions, strict=True):
            table += torch.bincount(position, minlength=table.numel()).reshape(table.shape)
    return counts


def clipped_logit(probabilities: Tensor) -> Tensor:
    """log(p / (1 - p)), within the range of the bins."""
    return torch.logit(probabilities.double()).clamp(float(LOGIT_EDGES[0]), float(LOGIT_EDGES[-1]))


def logit_bin(probabilities: Tensor) -> Tensor:
    """The bin of each probability's logit in a histogram."""
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
