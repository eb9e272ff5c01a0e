"""Train mode and eval mode of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import nets

#: Layers that compute the same in both modes. Any other layer may not.
_MODE_INDEPENDENT = (
    nn.Sequential,
    nn.Identity,
    nn.Flatten,
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.ReLU,
    nn.LeakyReLU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.Embedding,
)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode for the block, then restore the mode of each module.

    Modes are restored one by one, since a user may keep a BatchNorm in eval mode inside a model that trains.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def is_mode_independent(model: nn.Module) -> bool:
    """Whether the model computes the same in train and eval mode: no BatchNorm, no dropout.

    Only the types of its layers are inspected. A user's own class may check the mode in `forward`, so it counts as
    mode dependent.

    >>> is_mode_independent(nn.Sequential(nn.Linear(3, 2), nn.ReLU())), is_mode_independent(nn.Sequential(nn.Dropout()))
    (True, False)
    """
    return all(_is_module_mode_independent(module) for module in model.modules())


def _is_module_mode_independent(module: nn.Module) -> bool:
    module_type = type(module)
    if isinstance(module, nn.RNNBase):
        return module.dropout == 0 and module_type in (nn.LSTM, nn.GRU, nn.RNN)
    # Our own nets only combine layers and do not check the mode.
    return module_type in _MODE_INDEPENDENT or module_type.__module__.startswith(f"{nets.__name__}.")


@contextmanager
def use_running_statistics(model: nn.Module, samples: int) -> Iterator[None]:
    """Within the block, a BatchNorm that receives one value per channel uses its running statistics.

    PyTorch raises an error in that case, which would end the run for a client with a single sample. With two or more
    values per channel, as for an image, BatchNorm works as usual.

    Args:
        model: the model to be trained by forwards inside the block.
        samples: size of the smallest batch; with more than one the block has no effect.
    """
    if samples > 1:
        yield
        return
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    hooks = [layer.register_forward_pre_hook(_train_if_several_values) for layer in layers]
    try:
        yield
    finally:
        for hook, layer in zip(hooks, layers, strict=True):
            hook.remove()
            layer.training = True


def _train_if_several_values(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    layer.training = inputs[0].numel() > inputs[0].shape[1]
