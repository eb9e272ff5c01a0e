"""Any classifier of torchvision, as `torchvision:resnet18`."""

from __future__ import annotations

import logging

from torch import nn

from ..errors import UserError, nearest
from .adapters import adapt_inputs, in_colour
from .image_shape import image_shape

PREFIX = "torchvision:"

#: These answer with a tuple in training unless their second head is left out.
_TWO_HEADED = ("googlenet", "inception_v3")

_log = logging.getLogger(__name__)


def torchvision_model(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model after the prefix, without trained weights, its last layer `classes` wide.

    Grey images reach it with their one channel three times.
    """
    # Imported here: it takes seconds and most runs do not use it.
    import torchvision.models

    known = torchvision.models.list_models(module=torchvision.models)
    model_name = name[len(PREFIX) :]
    if model_name not in known:
        raise UserError(f"model_args.model {name!r}: torchvision has no such model; {nearest(model_name, known)}")
    channels, _, _ = image_shape(name, input_shape, smallest_side=1)
    if channels not in (1, 3):
        raise UserError(f"model_args.model {name!r} wants images of 3 channels (or 1), but they have {channels} here")
    heads = {"aux_logits": False, "init_weights": True} if model_name in _TWO_HEADED else {}
    model: nn.Module = torchvision.models.get_model(model_name, weights=None, num_classes=classes, **heads)
    if channels == 1:
        _log.info("%s sees the grey channel three times, as it wants colours", name)
        adapt_inputs(model, in_colour)
    return model
