"""`model_args`: the classifier, and where h(x) is read from it."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count


@dataclass(frozen=True, config=VALIDATED)
class ModelSettings:
    """`model_args`: the classifier, and where h(x) is read from it."""

    model: str = "mlp"
    #: The module whose output is h(x); found by itself where it is not given.
    feature_layer: str | None = None
    #: Width of MLPNet's last hidden layer.
    feature_size: Count = 128
    #: Width of MLPNet's first two hidden layers.
    hidden_size: Count = 1024
    vocabulary: Count | None = None  #: How many different characters a text model reads; by default, the data's.
