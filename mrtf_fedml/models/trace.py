"""Which modules one forward of a model runs, in order, with the shapes that pass through them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..randomness import forked
from .evaluation import device_of, evaluating


@dataclass(frozen=True)
class Call:
    """One call of one module, listed when it returns: a module's children stand before it."""

    name: str
    module: nn.Module
    #: Shapes of the first tensor taken in and given out; None where there is none.
    input_shape: torch.Size | None
    output_shape: torch.Size | None

    @property
    def innermost(self) -> bool:
        """Whether the module has no modules inside."""
        return next(self.module.children(), None) is None


def trace(model: nn.Module, example: Tensor) -> tuple[list[Call], Any]:
    """The calls that one forward of `example` makes in eval mode, and what the model returned.

    The model is left as it was: modes, buffers and hooks. So are the example and the global random state,
    since a model may work in place, and may call dropout as a function, which knows no eval mode.
    """
    calls: list[Call] = []
    names = {module: name for name, module in model.named_modules()}
    buffers = [
        (module, key, buffer, buffer.clone()) for module in names for key, buffer in module.named_buffers(recurse=False)
    ]

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append(Call(names[module], module, _shape((args, kwargs)), _shape(output)))

    hooks: list[RemovableHandle] = []
    try:
        for module in names:
            hooks.append(module.register_forward_hook(note, with_kwargs=True))
        with evaluating(model), torch.inference_mode(), forked(0, "trace"):
            output = model(example.to(device_of(model), copy=True))
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for module, key, buffer, value in buffers:
                buffer.copy_(value)
                setattr(module, key, buffer)
    return calls, output


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor in a module's arguments or in what it returned, such as a recurrent layer's tuple.

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


def _shape(value: Any) -> torch.Size | None:
    tensor = first_tensor(value)
    return None if tensor is None else tensor.shape
