"""The tap that reads h(x) from any classifier without editing it.

The paper takes h(x) to be the last hidden layer's output in MLPs and recurrent nets, and the flattened output
of the convolutions in convolutional nets. Both are the input of some layer that one forward reveals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, nearest
from .positions import check_logits, rows_of_features
from .trace import Call, first_tensor, trace

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class _Place:
    """A module and the side of it where h(x) passes; `why` is said in logs."""

    call: Call
    side: str
    why: str

    @property
    def shape(self) -> torch.Size | None:
        return self.call.input_shape if self.side == "input" else self.call.output_shape


class FeatureTap:
    """Reads the logits and h(x) in one forward.

    Where h(x) is read:

    - with `layer`: the output of the module of that name;
    - a convolutional net: the input of the first `nn.Linear` after the convolutions; without one (a 1x1
      convolution classifies), the input of the last convolution;
    - any other net: the input of the last `nn.Linear`.

    A module's last call of the forward counts. Of a tuple, as recurrent layers return it, the first tensor is
    h(x). Features have one row per sample: [N, T, D] gives its last step, or, in a net with convolutions and
    nothing recurrent, everything flattened. Where the logits are [N, C, T] the features are [N * T, D], row
    n * T + t.

    Args:
        model: the classifier. It is left as it was, and the tap keeps no reference to it.
        layer: `model_args.feature_layer`, the name of a module as `model.named_modules()` spells it; None
            finds the place by itself.
        example: a small batch of inputs, for the one forward that reveals the order of the layers.

    Attributes:
        layer: the name of the module that is read.
        size: D.
        description: where h(x) is read, in words, for logs.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> tap = FeatureTap(model, None, torch.zeros(2, 4))
    >>> tap.description
    "h(x) is the input of layer '2', the last Linear, 3 numbers per sample"
    >>> logits, features = tap.read(model, torch.ones(5, 4))
    >>> logits.shape, features.shape
    (torch.Size([5, 2]), torch.Size([5, 3]))
    """

    def __init__(self, model: nn.Module, layer: str | None, example: Tensor) -> None:
        calls, output = trace(model, example)
        logits = check_logits(output, len(example))
        place = _find(calls) if layer is None else _named(model, calls, layer)
        convolutional = any(isinstance(call.module, _CONVOLUTIONS) for call in calls)
        recurrent = any(isinstance(call.module, nn.RNNBase) for call in calls)
        self.layer = place.call.name
        self._side = place.side
        self._channels_first = isinstance(place.call.module, _CONVOLUTIONS)
        self._sequence = (recurrent or not convolutional) and not self._channels_first
        if place.shape is None:
            raise UserError(_no_tensor(self.layer))
        self.size = self._rows(torch.empty(place.shape, device="meta"), logits).shape[1]
        module = f"layer {self.layer!r}" if self.layer else "the model"
        self.description = f"h(x) is the {place.side} of {module}, {place.why}, {self.size} numbers per sample"

    def read(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The model's logits as it gives them, and h(x) as [N, D] (or [N * T, D]), from one forward.

        The mode and the gradient are the caller's: in training, the features carry gradients. `model` may be
        the module of the constructor with other weights, or another of the same structure, on any device that
        `inputs` are on. Nothing stays hooked or held afterwards.
        """
        seen: list[Tensor] = []

        def keep(value: Any) -> None:
            tensor = first_tensor(value)
            # A copy, since the next layer may work in place (ReLU often does).
            seen[:] = [] if tensor is None else [tensor.clone()]

        module = model.get_submodule(self.layer)
        if self._side == "input":
            hook = module.register_forward_pre_hook(lambda module, args, kwargs: keep((args, kwargs)), with_kwargs=True)
        else:
            hook = module.register_forward_hook(lambda module, args, output: keep(output))
        try:
            logits = check_logits(model(inputs), len(inputs))
        finally:
            hook.remove()
        if not seen:
            raise UserError(_no_tensor(self.layer))
        return logits, self._rows(seen.pop(), logits)

    def _rows(self, features: Tensor, logits: Tensor) -> Tensor:
        return rows_of_features(features, logits, self._sequence, self._channels_first)


def _find(calls: list[Call]) -> _Place:
    linears = [index for index, call in enumerate(calls) if isinstance(call.module, nn.Linear)]
    convolutions = [index for index, call in enumerate(calls) if isinstance(call.module, _CONVOLUTIONS)]
    if not convolutions:
        if not linears:
            raise UserError(
                "the model runs no Linear and no convolution, so h(x) cannot be found; set "
                "model_args.feature_layer to the name of the module whose output is h(x)"
            )
        return _Place(calls[linears[-1]], "input", "the last Linear")
    after = [index for index in linears if index > convolutions[-1]]
    if not after:
        return _Place(calls[convolutions[-1]], "input", "the last convolution")
    # Squeeze-and-excitation, ConvNeXt's blocks and transformers also run Linears after their last
    # convolution, but maps or tokens pass through other layers still: the head begins where they end.
    unflattened = [index for index, call in enumerate(calls) if call.innermost and _is_map(call)]
    head = [index for index in after if index > max(unflattened, default=-1)]
    return _Place(calls[(head or after)[0]], "input", "the first Linear after the convolutions")


def _is_map(call: Call) -> bool:
    return call.input_shape is not None and len(call.input_shape) > 2


def _named(model: nn.Module, calls: list[Call], layer: str) -> _Place:
    names = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    if layer not in names:
        raise UserError(f"model_args.feature_layer {layer!r} is no layer of the model; {nearest(layer, list(names))}")
    own = [call for call in calls if call.module is names[layer]]
    if not own:
        raise UserError(
            f"model_args.feature_layer {layer!r} is never called when the model runs; "
            f"{nearest(layer, [call.name for call in calls if call.name])}"
        )
    return _Place(own[-1], "output", "named by model_args.feature_layer")


def _no_tensor(layer: str) -> str:
    return f"no tensor passes at layer {layer!r}, where h(x) is read; set model_args.feature_layer to another"
