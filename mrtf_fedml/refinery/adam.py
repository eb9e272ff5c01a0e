"""Adam on a student's parameters, without what an Optimizer does around a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class _Moments(NamedTuple):
    """Of one parameter: the means of its gradients and of their squares, and how many steps it has made."""

    first: Tensor
    second: Tensor
    steps: Tensor


class Adam:
    """The steps of `torch.optim.Adam(fused=True)`, to the bit: the same kernel, called by its functional form.

    Around each step an Optimizer opens a block for profilers and looks up its state by parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], weight_decay: float) -> None:
        self._parameters = parameters
        self._weight_decay = weight_decay
        self._moments: list[_Moments | None] = [None] * len(parameters)

    def step(self, rate: float) -> None:
        """One step by the gradients that there are; a parameter without one stays as it is."""
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        moments: list[_Moments] = []
        for place, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                parameters.append(parameter)
                gradients.append(parameter.grad)
                moments.append(self._moments_at(place))
        with torch.no_grad():
            adam(
                parameters,
                gradients,
                [moment.first for moment in moments],
                [moment.second for moment in moments],
                [],
                [moment.steps for moment in moments],
                fused=True,
                amsgrad=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=rate,
                weight_decay=self._weight_decay,
                eps=_EPSILON,
                maximize=False,
            )

    def _moments_at(self, place: int) -> _Moments:
        known = self._moments[place]
        if known is None:
            parameter = self._parameters[place]
            known = self._moments[place] = _Moments(
                torch.zeros_like(parameter, requires_grad=False),
                torch.zeros_like(parameter, requires_grad=False),
                torch.zeros((), dtype=torch.float32, device=parameter.device),
            )
        return known
