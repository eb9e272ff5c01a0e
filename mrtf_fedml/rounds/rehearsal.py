"""The callback of a rehearsed run: how its stand-in differs from the server's real set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data import TransductiveDataset
from ..data.likeness import far_features, told_apart
from ..models import predict_logits
from .callbacks import Callback

if TYPE_CHECKING:
    from .loop import Run

FILE = "rehearsal.json"


class Rehearsal(Callback):
    """Writes rehearsal.json. The real set is read here alone, after the last round: it changes nothing."""

    def __init__(self, dataset: TransductiveDataset, real_inputs: Tensor) -> None:
        self._dataset = dataset
        self._real = real_inputs

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Sizes, shares of the classes that the model gives in each of the two sets, and how far these are apart."""
        mock, names = self._dataset.server_inputs, self._dataset.class_names
        answers = run.answer_logits()
        run.bench.model.load_state_dict(run.state.answer)
        real = predict_logits(run.bench.model, self._real)
        summary["rehearsed"] = len(mock)
        run.store.write_json(
            FILE,
            {
                "held_out": len(mock),
                "kept": int(self._dataset[0]),
                "clients": self._dataset.client_num,
                "real": len(self._real),
                "class_names": names,
                "shares_rehearsed": _shares(answers, len(names)),
                "shares_real": _shares(real, len(names)),
                "told_apart": told_apart(mock, self._real),
                "far_features": far_features(mock, self._real, self._dataset.preprocessing.features),
            },
        )


def _shares(logits: Tensor, classes: int) -> list[float]:
    labels = logits.argmax(dim=1).cpu()
    return (torch.bincount(labels, minlength=classes).double() / len(labels)).tolist()
