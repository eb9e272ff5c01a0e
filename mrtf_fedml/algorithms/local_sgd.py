"""SGD on a client's parameters, without what an Optimizer does around a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from ..settings import TrainSettings


class LocalSGD:
    """The steps of `torch.optim.SGD(fused=True)`, to the bit: the same kernel, called by its functional form.

    An Optimizer is made anew for every client, and each of its steps opens a block for profilers and looks up its state
    by parameter. Of a logistic regression's training that was a fifth, the arithmetic of the step a fiftieth.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], settings: TrainSettings) -> None:
        self._parameters = parameters
        self._settings = settings
        self._momenta: list[Tensor | None] = [None] * len(parameters)

    def step(self) -> None:
        """One step by the gradients that there are; a parameter without one stays as it is."""
        places = [place for place, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parameters: list[Tensor] = [self._parameters[place] for place in places]
        gradients: list[Tensor] = [self._parameters[place].grad for place in places]  # type: ignore[misc]
        momenta = [self._momenta[place] for place in places] if self._settings.momentum else []
        with torch.no_grad():
            sgd(
                parameters,
                gradients,
                momenta,
                has_sparse_grad=any(gradient.is_sparse for gradient in gradients),
                fused=True,
                weight_decay=self._settings.weight_decay,
                momentum=self._settings.momentum,
                lr=self._settings.learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        for place, momentum in zip(places, momenta, strict=False):
            self._momenta[place] = momentum
