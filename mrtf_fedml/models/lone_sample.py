"""Training on a single sample, which has no statistics for BatchNorm to take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def running_statistics(model: nn.Module, samples: int) -> Iterator[None]:
    """Within the block a BatchNorm that would see one value per channel takes its running statistics.

    With two values or more, as a picture has, it does as always. PyTorch raises for one: a client with a single sample
    would end the run.

    Args:
        model: about to be trained, by forwards inside the block.
        samples: in the smallest batch; with more than one the block is nothing special.
    """
    if samples > 1:
        yield
        return
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    hooks = [layer.register_forward_pre_hook(_train_on_several) for layer in layers]
    try:
        yield
    finally:
        for hook, layer in zip(hooks, layers, strict=True):
            hook.remove()
            layer.training = True


def _train_on_several(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    layer.training = inputs[0].numel() > inputs[0].shape[1]
