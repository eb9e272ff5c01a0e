"""How maps lie in memory: channels last in convolutional nets, by a rule that looks at the layers alone.

A timing at the start would let two runs of one seed differ; a rule gives every process of a run the same answer.
docs/speed.md has the measurements behind it. Sums are taken in another order, so the last bits differ from those of
the standard layout. What leaves a process (states, messages, files) lies in the standard layout, whatever the model's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CHANNELS_LAST, STANDARD = "channels_last", "standard"


def layout_of(model: nn.Module) -> str:
    """`channels_last` where two-dimensional convolutions do the work, each over all its maps; else `standard`.

    Grouped convolutions were not measured, and a parameter of five dimensions has no such layout.

    >>> layout_of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())), layout_of(nn.Linear(3, 2))
    ('channels_last', 'standard')
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions or any(layer.groups > 1 for layer in convolutions):
        return STANDARD
    return STANDARD if any(parameter.dim() == 5 for parameter in model.parameters()) else CHANNELS_LAST


def lay_out(model: nn.Module) -> str:
    """Bring the model's own parameters into its layout; once done, another call changes nothing."""
    layout = layout_of(model)
    if layout == CHANNELS_LAST:
        model.to(memory_format=torch.channels_last)
    return layout


def as_laid_out(inputs: Tensor, layout: str) -> Tensor:
    """The inputs in that layout; themselves where they lie so already, or are no maps."""
    if layout == CHANNELS_LAST and inputs.dim() == 4:
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def in_layout(model: nn.Module, inputs: Tensor) -> Tensor:
    """The inputs in the layout of a model, which is brought into it as well."""
    return as_laid_out(inputs, lay_out(model))
