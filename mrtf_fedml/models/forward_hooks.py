"""Hooks that adapt a model to the data: transform its inputs, or drop its surplus logits.

Hooks and not wrappers: the model stays the same object with the same state-dict keys, so that its weights can be loaded
into the same model elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .outputs import check_logits

_log = logging.getLogger(__name__)

InputTransform = Callable[[Tensor], Tensor]


def flatten_inputs(inputs: Tensor) -> Tensor:
    """[N, ...] as [N, D]."""
    return inputs.flatten(1)


def to_grey_28(inputs: Tensor) -> Tensor:
    """Grey images of 28 x 28 pixels, [N, 1, 28, 28] or [N, 784], as [N, 28, 28]."""
    return inputs.reshape(len(inputs), 28, 28)


def grey_to_rgb(inputs: Tensor) -> Tensor:
    """Grey images [N, 1, H, W] as [N, 3, H, W], the channel repeated; other inputs unchanged."""
    return inputs.repeat(1, 3, 1, 1) if inputs.dim() == 4 and inputs.shape[1] == 1 else inputs


def to_indices(inputs: Tensor) -> Tensor:
    """Integers of any type as int64, for an embedding."""
    return inputs.long()


def adapt_inputs(model: nn.Module, transform: InputTransform) -> nn.Module:
    """Let the model receive `transform(inputs)`; returns the same model.

    >>> model = adapt_inputs(nn.Linear(6, 2), flatten_inputs)
    >>> import torch
    >>> model(torch.zeros(5, 2, 3)).shape, list(model.state_dict())
    (torch.Size([5, 2]), ['weight', 'bias'])
    """
    model.register_forward_pre_hook(_InputHook(transform))
    return model


def truncate_logits(model: nn.Module, classes: int, name: str) -> nn.Module:
    """Let the model return its first `classes` logits only, with one warning; returns the same model."""
    model.register_forward_hook(_TruncationHook(classes, name))
    return model


def has_truncated_logits(model: nn.Module) -> bool:
    """Whether `truncate_logits` was called for the model."""
    return any(isinstance(hook, _TruncationHook) for hook in model._forward_hooks.values())


class _InputHook:
    """A class, since a model with a lambda as a hook cannot be pickled."""

    def __init__(self, transform: InputTransform) -> None:
        self.transform = transform

    def __call__(self, model: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.transform(args[0]), *args[1:])


class _TruncationHook:
    def __init__(self, classes: int, name: str) -> None:
        self.classes = classes
        self.name = name
        self.has_warned = False

    def __call__(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        logits = check_logits(output, len(args[0]))
        if logits.shape[1] <= self.classes:
            return logits
        if not self.has_warned:
            self.has_warned = True
            _log.warning(
                "%s gives %d logits but the data have %d classes: the first %d are used",
                self.name,
                logits.shape[1],
                self.classes,
                self.classes,
            )
        return logits[:, : self.classes]
