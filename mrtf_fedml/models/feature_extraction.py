"""Extraction of features h(x) from any classifier, without changing it.

The paper defines h(x) as the output of the last hidden layer in MLPs and recurrent nets, and as the flattened output
of the convolutions in convolutional nets. Both are the input of some layer, which one forward reveals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..errors import UserError, suggest_name
from ..rng import fork_rng
from .memory_layout import model_device
from .modes import eval_mode
from .outputs import check_logits, feature_rows

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module, recorded when it returns: a module's children come before it.

    Attributes:
        input_shape: shape of the first tensor among its arguments; None if there is none.
        output_shape: shape of the first tensor that it returned; None if there is none.
    """

    name: str
    module: nn.Module
    input_shape: torch.Size | None
    output_shape: torch.Size | None

    @property
    def is_leaf(self) -> bool:
        """Whether the module has no submodules."""
        return next(self.module.children(), None) is None


@dataclass(frozen=True)
class _FeatureLocation:
    """A module call, the side of it (input or output) that is h(x), and the reason for the choice, for logs."""

    call: ModuleCall
    side: str
    reason: str

    @property
    def shape(self) -> torch.Size | None:
        return self.call.input_shape if self.side == "input" else self.call.output_shape


class FeatureExtractor:
    """Gives the logits and h(x) in one forward.

    Location of h(x):

    - with `layer`: the output of the module of that name;
    - in a convolutional net: the input of the first `nn.Linear` after the convolutions; without one (a 1x1
      convolution classifies), the input of the last convolution;
    - in any other net: the input of the last `nn.Linear`.

    If a module is called several times, its last call counts. If it returns a tuple, as recurrent layers do, the first
    tensor is h(x). Features have one row per sample: of [N, T, D] the last step is used, or, in a net with
    convolutions and no recurrent layer, everything is flattened. If the logits are [N, C, T], the features are
    [N * T, D], row n * T + t.

    Args:
        model: the classifier. It is not changed, and no reference to it is kept.
        layer: `model_args.feature_layer`, the name of a module in `model.named_modules()`; None finds the location
            automatically.
        example: a small batch of inputs, for the forward that reveals the order of the layers.

    Attributes:
        layer: the name of the module at which h(x) is read.
        size: D.
        description: the location of h(x) in words, for logs.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extractor = FeatureExtractor(model, None, torch.zeros(2, 4))
    >>> extractor.description
    "h(x) is the input of layer '2', the last Linear, 3 numbers per sample"
    >>> logits, features = extractor.extract(model, torch.ones(5, 4))
    >>> logits.shape, features.shape
    (torch.Size([5, 2]), torch.Size([5, 3]))
    """

    def __init__(self, model: nn.Module, layer: str | None, example: Tensor) -> None:
        calls, output = trace_calls(model, example)
        logits = check_logits(output, len(example))
        location = _find_location(calls) if layer is None else _location_of_layer(model, calls, layer)
        convolutional = any(isinstance(call.module, _CONVOLUTIONS) for call in calls)
        recurrent = any(isinstance(call.module, nn.RNNBase) for call in calls)
        self.layer = location.call.name
        self._side = location.side
        self._channels_first = isinstance(location.call.module, _CONVOLUTIONS)
        self._sequence = (recurrent or not convolutional) and not self._channels_first
        if location.shape is None:
            raise UserError(_no_tensor_message(self.layer))
        self.size = self._rows(torch.empty(location.shape, device="meta"), logits).shape[1]
        module = f"layer {self.layer!r}" if self.layer else "the model"
        self.description = f"h(x) is the {location.side} of {module}, {location.reason}, {self.size} numbers per sample"

    def extract(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The model's logits unchanged, and h(x) as [N, D] (or [N * T, D]), from one forward.

        The caller sets the mode and the gradient; in training the features carry gradients. `model` may be the module
        of the constructor with other weights, or another of the same structure, on the device of `inputs`. No hook and
        no reference remains afterwards.
        """
        captured: list[Tensor] = []

        def capture(value: Any) -> None:
            tensor = first_tensor(value)
            # A copy, since the next layer may work in place, as ReLU often does.
            captured[:] = [] if tensor is None else [tensor.clone()]

        module = model.get_submodule(self.layer)
        if self._side == "input":
            hook = module.register_forward_pre_hook(
                lambda module, args, kwargs: capture((args, kwargs)), with_kwargs=True
            )
        else:
            hook = module.register_forward_hook(lambda module, args, output: capture(output))
        try:
            logits = check_logits(model(inputs), len(inputs))
        finally:
            hook.remove()
        if not captured:
            raise UserError(_no_tensor_message(self.layer))
        return logits, self._rows(captured.pop(), logits)

    def _rows(self, features: Tensor, logits: Tensor) -> Tensor:
        return feature_rows(features, logits, self._sequence, self._channels_first)


def _find_location(calls: list[ModuleCall]) -> _FeatureLocation:
    linears = [index for index, call in enumerate(calls) if isinstance(call.module, nn.Linear)]
    convolutions = [index for index, call in enumerate(calls) if isinstance(call.module, _CONVOLUTIONS)]
    if not convolutions:
        if not linears:
            raise UserError(
                "the model runs no Linear and no convolution, so h(x) cannot be found; set "
                "model_args.feature_layer to the name of the module whose output is h(x)"
            )
        return _FeatureLocation(calls[linears[-1]], "input", "the last Linear")
    after = [index for index in linears if index > convolutions[-1]]
    if not after:
        return _FeatureLocation(calls[convolutions[-1]], "input", "the last convolution")
    # Squeeze-and-excitation, ConvNeXt's blocks and transformers also run Linears after their last convolution, but
    # other layers still receive maps or tokens: the head starts after the last of these.
    unflattened = [index for index, call in enumerate(calls) if call.is_leaf and _has_map_input(call)]
    head = [index for index in after if index > max(unflattened, default=-1)]
    return _FeatureLocation(calls[(head or after)[0]], "input", "the first Linear after the convolutions")


def _has_map_input(call: ModuleCall) -> bool:
    return call.input_shape is not None and len(call.input_shape) > 2


def _location_of_layer(model: nn.Module, calls: list[ModuleCall], layer: str) -> _FeatureLocation:
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    if layer not in modules:
        raise UserError(
            f"model_args.feature_layer {layer!r} is not a layer of the model; {suggest_name(layer, list(modules))}"
        )
    calls_of_layer = [call for call in calls if call.module is modules[layer]]
    if not calls_of_layer:
        raise UserError(
            f"model_args.feature_layer {layer!r} is never called when the model runs; "
            f"{suggest_name(layer, [call.name for call in calls if call.name])}"
        )
    return _FeatureLocation(calls_of_layer[-1], "output", "set by model_args.feature_layer")


def _no_tensor_message(layer: str) -> str:
    return f"layer {layer!r}, where h(x) is read, passes no tensor; set model_args.feature_layer to another layer"


def trace_calls(model: nn.Module, example: Tensor) -> tuple[list[ModuleCall], Any]:
    """The module calls of one forward of `example` in eval mode, and the model's output.

    Modes, buffers and hooks of the model, the example and the global random state are unchanged: a model may work in
    place, and may call dropout as a function, which ignores eval mode.
    """
    calls: list[ModuleCall] = []
    names = {module: name for name, module in model.named_modules()}
    buffers = [
        (module, key, buffer, buffer.clone()) for module in names for key, buffer in module.named_buffers(recurse=False)
    ]

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append(ModuleCall(names[module], module, _tensor_shape((args, kwargs)), _tensor_shape(output)))

    hooks: list[RemovableHandle] = []
    try:
        for module in names:
            hooks.append(module.register_forward_hook(record, with_kwargs=True))
        with eval_mode(model), torch.inference_mode(), fork_rng(0, "trace"):
            output = model(example.to(model_device(model), copy=True))
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for module, key, buffer, value in buffers:
                buffer.copy_(value)
                setattr(module, key, buffer)
    return calls, output


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor in a module's arguments or return value, such as a recurrent layer's tuple.

    >>> first_tensor((None, [torch.tensor(7), torch.tensor(8)]))
    tensor(7)
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((tensor for tensor in map(first_tensor, value) if tensor is not None), None)
    return None


def _tensor_shape(value: Any) -> torch.Size | None:
    tensor = first_tensor(value)
    return None if tensor is None else tensor.shape
