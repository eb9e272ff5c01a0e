"""A model met as it is: its inputs brought into the shape it wants, its surplus logits left out.

Both are hooks on the model and no wrapper around it. The model stays the object it was, the names of its layers and
the keys of its state dict too, so its weights load into the same model anywhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .positions import check_logits

_log = logging.getLogger(__name__)

Change = Callable[[Tensor], Tensor]


def flat(inputs: Tensor) -> Tensor:
    """[N, ...] as [N, D]."""
    return inputs.flatten(1)


def grey_28(inputs: Tensor) -> Tensor:
    """Grey images of 28 x 28 pixels, [N, 1, 28, 28] or [N, 784], as [N, 28, 28]."""
    return inputs.reshape(len(inputs), 28, 28)


def in_colour(inputs: Tensor) -> Tensor:
    """Grey images [N, 1, H, W] as [N, 3, H, W], the one channel three times."""
    return inputs.repeat(1, 3, 1, 1) if inputs.dim() == 4 and inputs.shape[1] == 1 else inputs


def as_indices(inputs: Tensor) -> Tensor:
    """Whole numbers of any type as int64, which an embedding wants."""
    return inputs.long()


def adapt_inputs(model: nn.Module, change: Change) -> nn.Module:
    """The same model, which from now on sees `change(inputs)` in place of its inputs.

    >>> model = adapt_inputs(nn.Linear(6, 2), flat)
    >>> import torch
    >>> model(torch.zeros(5, 2, 3)).shape, list(model.state_dict())
    (torch.Size([5, 2]), ['weight', 'bias'])
    """
    model.register_forward_pre_hook(_ChangedInput(change))
    return model


def keep_first_classes(model: nn.Module, classes: int, name: str) -> nn.Module:
    """The same model, of whose logits from now on the first `classes` alone are given; one warning says so."""
    model.register_forward_hook(_FirstClasses(classes, name))
    return model


def keeps_first_classes(model: nn.Module) -> bool:
    """Whether `keep_first_classes` was called for the model."""
    return any(isinstance(hook, _FirstClasses) for hook in model._forward_hooks.values())


class _ChangedInput:
    """A class, since a model with a lambda for a hook could neither be pickled nor sent."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def __call__(self, model: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.change(args[0]), *args[1:])


class _FirstClasses:
    def __init__(self, classes: int, name: str) -> None:
        self.classes = classes
        self.name = name
        self.warned = False

    def __call__(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        logits = check_logits(output, len(args[0]))
        if logits.shape[1] <= self.classes:
            return logits
        if not self.warned:
            self.warned = True
            _log.warning(
                "%s gives %d logits but the data have %d classes: the first %d are used",
                self.name,
                logits.shape[1],
                self.classes,
                self.classes,
            )
        return logits[:, : self.classes]
