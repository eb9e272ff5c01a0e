"""What a model's file tells beside its weights: all that is needed to use it on more data of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..data.preprocessing import Preprocessing
from ..settings import ModelSettings
from ..settings.sections import values_of
from ..version import __version__


def model_facts(
    model: nn.Module,
    settings: ModelSettings,
    input_shape: Sequence[int],
    class_names: Sequence[str],
    preprocessing: Preprocessing,
) -> dict[str, Any]:
    """Class names, the shape of a sample, what was done to samples, the model and its settings, our version.

    No time, path or score is among them, so that equal models make equal files.
    """
    values = values_of(settings)
    # Where the data have told how many characters there are, the model has room for so many.
    embeddings = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    if embeddings and values["vocabulary"] is None:
        values["vocabulary"] = embeddings[0]
    return {
        "class_names": list(class_names),
        "input_shape": list(input_shape),
        "model": values,
        "preprocessing": preprocessing.facts(),
        "version": __version__,
    }
