"""`model_args`: the classifier, and where h(x) is read from it."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count


@dataclass(frozen=True, config=VALIDATED)
class ModelSettings:
    """`model_args`: the classifier, and where h(x) is read from it."""

    #: The paper's `mlp`, `lenet`, `convnet`, `vgg8`, `resnet8`, `resnet20`, `fecnn`, `charlstm`; a name of FedML's zoo;
    #: `torchvision:resnet18` and its like; or your own as `package.module:Class`.
    model: str = "mlp"
    #: The module whose output is h(x), by its name in the model; found by itself where it is not given.
    feature_layer: str | None = None
    #: Width of MLPNet's last hidden layer.
    feature_size: Count = 128
    #: Width of MLPNet's first two hidden layers.
    hidden_size: Count = 1024
    #: How many different characters a text model reads; the data tell where it is not given. Silos that each hold
    #: their own texts must agree on it.
    vocabulary: Count | None = None
