"""Whether a model answers in train mode as it does in use."""

from __future__ import annotations

from torch import nn

from . import nets

#: Layers that do the same in both; a layer that is not named here may do anything.
_ALIKE = (
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


def answers_alike(model: nn.Module) -> bool:
    """Whether train mode changes nothing, seen from the kinds of its layers alone: no BatchNorm, no dropout.

    A class of a user's own may look at the mode in its `forward`, so it counts as one that does.

    >>> answers_alike(nn.Sequential(nn.Linear(3, 2), nn.ReLU())), answers_alike(nn.Sequential(nn.Dropout()))
    (True, False)
    """
    return all(_is_alike(module) for module in model.modules())


def _is_alike(module: nn.Module) -> bool:
    kind = type(module)
    if isinstance(module, nn.RNNBase):
        return module.dropout == 0 and kind in (nn.LSTM, nn.GRU, nn.RNN)
    # The nets here put layers together, and ask for no mode.
    return kind in _ALIKE or kind.__module__.startswith(f"{nets.__name__}.")
