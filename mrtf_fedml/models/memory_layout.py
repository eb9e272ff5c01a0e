"""Device and memory layout of a model: channels last for convolutional nets, by a rule on the layers alone.

A timing at the start could let two runs of one seed differ; a rule gives the same result in every process.
docs/lab/speed.md has the measurements behind it. Sums are computed in another order, so the last bits differ from
those of the standard layout. States, messages and files always have the standard layout.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn

CHANNELS_LAST, STANDARD = "channels_last", "standard"


def model_device(model: nn.Module) -> torch.device:
    """The device of the model's first parameter or buffer; the CPU if it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def preferred_layout(model: nn.Module) -> str:
    """`channels_last` for a model with ungrouped two-dimensional convolutions, else `standard`.

    Grouped convolutions were not measured, and five-dimensional parameters have no such layout.

    >>> preferred_layout(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())), preferred_layout(nn.Linear(3, 2))
    ('channels_last', 'standard')
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions or any(layer.groups > 1 for layer in convolutions):
        return STANDARD
    return STANDARD if any(parameter.dim() == 5 for parameter in model.parameters()) else CHANNELS_LAST


def apply_layout(model: nn.Module) -> str:
    """Convert the model's parameters to its preferred layout, in place; returns the layout."""
    layout = preferred_layout(model)
    if layout == CHANNELS_LAST:
        model.to(memory_format=torch.channels_last)
    return layout


def to_layout(inputs: Tensor, layout: str) -> Tensor:
    """The inputs in that layout; the same tensor if it has it already or is not four-dimensional."""
    if layout == CHANNELS_LAST and inputs.dim() == 4:
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def match_layout(model: nn.Module, inputs: Tensor) -> Tensor:
    """The inputs in the model's preferred layout; the model is converted too."""
    return to_layout(inputs, apply_layout(model))
