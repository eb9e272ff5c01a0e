"""What a convolutional network asks of the shape of a sample."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UserError


def image_shape(model: str, input_shape: Sequence[int], smallest_side: int) -> tuple[int, int, int]:
    """Channels, height and width of one sample, or a `UserError` that names what else to use.

    >>> image_shape("lenet", (1, 28, 28), smallest_side=4)
    (1, 28, 28)
    """
    shape = " x ".join(str(size) for size in input_shape)
    if len(input_shape) != 3:
        raise UserError(
            f"model_args.model {model!r} wants images of channels x height x width, but a sample here is "
            f"{shape}; use `model: mlp`, which takes any shape"
        )
    channels, height, width = input_shape
    if min(height, width) < smallest_side:
        raise UserError(
            f"model_args.model {model!r} wants images of at least {smallest_side} x {smallest_side} pixels, "
            f"but a sample here is {shape} (channels x height x width); use `model: mlp` or larger images"
        )
    return channels, height, width
