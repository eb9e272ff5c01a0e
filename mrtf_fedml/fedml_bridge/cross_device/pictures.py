"""Pictures as a device gives them to its network."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from ...data.tensors import DEVIATION, MEAN
from ...errors import UserError

_GREY_LEVELS = 255
_ROUNDING = 1e-3


def as_on_device(inputs: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Our loader's pictures [N, channels, H, W] as FedML's app has them: every grey level x as x/255, and fitted.

    Our loader centres them around zero. Other numbers, which are nobody's grey levels, keep their values.
    """
    if inputs.ndim != 4 or inputs.shape[1] not in (1, shape[0]):
        raise UserError(
            f"the devices' model takes pictures of shape {shape}, and the data have {tuple(inputs.shape[1:])}; choose "
            "another model_args.model or other data"
        )
    levels = (inputs * DEVIATION + MEAN) * _GREY_LEVELS
    centred = bool((levels >= -_ROUNDING).all()) and bool(((levels - levels.round()).abs() < _ROUNDING).all())
    return fitted((levels / _GREY_LEVELS) if centred else inputs, shape)


def fitted(inputs: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Pictures [N, 1 or channels, any height, any width] in the network's shape: grey as colour, and resized."""
    if inputs.shape[1] == 1 != shape[0]:
        inputs = inputs.expand(-1, shape[0], -1, -1)
    if tuple(inputs.shape[2:]) != shape[1:]:
        inputs = functional.interpolate(inputs, size=shape[1:], mode="bilinear", align_corners=False)
    return inputs
