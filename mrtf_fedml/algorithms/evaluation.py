"""After the last round, clients evaluate the model that predicts on samples that they never trained on.

What a client reports are integer counts of its held-out samples. `diagnostics/accuracy_estimate.py` draws the
conclusions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..models.modes import eval_mode
from ..models.state_dict import load_weights
from .types import Weights

#: The name of the table in a client's payload.
CONFUSION = "evaluation/confusion"
#: No client has more weight than this multiple of the median client, whatever number of samples it claims.
_MAX_WEIGHT = 2.0


@dataclass(frozen=True, eq=False)
class EvaluationCounts:
    """What a client reports after the last round about the model that predicts.

    Attributes:
        confusion: held-out samples of each class (row) by predicted class (column), [C, C].
    """

    confusion: Tensor

    @property
    def samples(self) -> int:
        """Held-out samples that were classified."""
        return int(self.confusion.sum())

    def to_payload(self) -> dict[str, Tensor]:
        """As it is sent."""
        return {CONFUSION: self.confusion}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Tensor], classes: int, most: float) -> EvaluationCounts | None:
        """The counts in a received payload; None where these are no counts of at most `most` samples."""
        confusion = payload.get(CONFUSION)
        if confusion is None or confusion.dtype != torch.int64 or confusion.shape != (classes, classes):
            return None
        # Entry by entry first: a sum of hostile numbers could overflow.
        if not bool(((confusion >= 0) & (confusion <= most)).all()) or confusion.double().sum() > most:
            return None
        return cls(confusion)

    def to_json(self) -> dict[str, Any]:
        """For validation.json."""
        return {"confusion": self.confusion.tolist()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> EvaluationCounts:
        """From validation.json."""
        return cls(torch.tensor(content["confusion"], dtype=torch.int64))


@torch.inference_mode()
def evaluate(model: nn.Module, weights: Weights, data: Iterable[Any], classes: int) -> EvaluationCounts:
    """Evaluate weights on a client's held-out samples; labels that are no class are not counted."""
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    for logits, labels in predictions_of(model, weights, data):
        labels, predicted = labels.flatten().long(), logits.argmax(dim=1).flatten()
        known = (labels >= 0) & (labels < classes)
        cells = torch.bincount(labels[known] * classes + predicted[known], minlength=classes**2)
        confusion += cells.reshape(classes, classes)
    return EvaluationCounts(confusion)


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
