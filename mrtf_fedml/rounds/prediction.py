"""What a finished run's model says of more samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ..models import MODELS, create_model, lay_out, predict_logits
from ..models.positions import ids_of_rows
from ..models.weights import load
from ..settings import ModelSettings
from .answer_files import predictions_table

#: Makes a model that is none of ours, from its settings, the shape of a sample, the number of classes and a seed.
Maker = Callable[[ModelSettings, list[int], int, int], nn.Module]


def predicted_table(
    weights: Mapping[str, Tensor], facts: Mapping[str, Any], inputs: Tensor, ids: list[str], make: Maker
) -> str:
    """predictions.csv of these inputs [N, ...], by the weights and what their file tells of them."""
    settings, shape, classes = ModelSettings(**facts["model"]), facts["input_shape"], len(facts["class_names"])
    # The initial weights are overwritten, so any seed will do.
    model = (create_model if settings.model in MODELS else make)(settings, shape, classes, 0)
    # As the run's own server had it, so that the same samples get the same bytes.
    lay_out(model)
    load(model, weights)
    logits = predict_logits(model, inputs)
    positions = len(logits) // len(inputs)
    names = ids_of_rows(ids, None if positions == 1 else positions)
    return predictions_table(logits.softmax(dim=1), names, facts["class_names"])
