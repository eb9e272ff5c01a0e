"""The callback of a run with a holdout: how the held-out samples differ from the server's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data import TransductiveDataset
from ..diagnostics.shift import shifted_features, two_sample_auc
from ..models import predict_logits
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

HOLDOUT_FILE = "holdout.json"


class HoldoutComparison(Callback):
    """Writes holdout.json after the last round. Nothing else reads the server's own inputs in such a run."""

    def __init__(self, dataset: TransductiveDataset, server_inputs: Tensor) -> None:
        self._dataset = dataset
        self._server_inputs = server_inputs

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Write the sizes of both sets, the predicted class frequencies in each, and how much the sets differ."""
        held_out, names = self._dataset.server_inputs, self._dataset.class_names
        held_out_logits = run.prediction_logits()
        run.context.model.load_state_dict(run.state.prediction_weights)
        server_logits = predict_logits(run.context.model, self._server_inputs)
        summary["holdout_samples"] = len(held_out)
        run.directory.write_json(
            HOLDOUT_FILE,
            {
                "held_out": len(held_out),
                "training": int(self._dataset[0]),
                "clients": self._dataset.client_num,
                "server": len(self._server_inputs),
                "class_names": names,
                "class_frequencies_holdout": _class_frequencies(held_out_logits, len(names)),
                "class_frequencies_server": _class_frequencies(server_logits, len(names)),
                "separability_auc": two_sample_auc(held_out, self._server_inputs),
                "shifted_features": shifted_features(
                    held_out, self._server_inputs, self._dataset.preprocessing.features
                ),
            },
        )


def _class_frequencies(logits: Tensor, classes: int) -> list[float]:
    labels = logits.argmax(dim=1).cpu()
    return (torch.bincount(labels, minlength=classes).double() / len(labels)).tolist()
