"""Checks that a model fits the data, made before the first round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import UserError
from .feature_extraction import trace_calls
from .memory_layout import model_device
from .modes import eval_mode
from .outputs import check_logits


def materialize_lazy_layers(model: nn.Module, example: Tensor, name: str) -> None:
    """Run one forward if the model has lazy layers (`nn.LazyLinear`), which infer their sizes from it.

    Their initial weights are drawn from the global random state; the caller forks it.
    """
    if any(is_lazy(tensor) for tensor in chain(model.parameters(), model.buffers())):
        # Not in inference mode: weights made there cannot be trained.
        with _forward_errors_as_user_errors(name, example), eval_mode(model), torch.no_grad():
            model(example.to(model_device(model), copy=True))


def check_model_output(model: nn.Module, example: Tensor, classes: int | None, name: str) -> Tensor:
    """The model's logits for `example`, [N, C] or [N, C, T]; a `UserError` if it does not fit the data.

    The forward runs in eval mode; the model, the example and the global random state are unchanged.

    Args:
        model: any classifier.
        example: a few of the data's inputs.
        classes: C; None accepts any number.
        name: the model's name in messages.
    """
    with _forward_errors_as_user_errors(name, example):
        _, output = trace_calls(model, example)
    logits = check_logits(output, len(example))
    if classes is not None and logits.shape[1] != classes:
        raise UserError(
            f"{name} gives {logits.shape[1]} logits but the data have {classes} classes; make its last layer "
            f"{classes} wide, or use a model that takes the number of classes"
        )
    if not bool(torch.isfinite(logits).all()):
        raise UserError(
            f"{name} gives logits that are not finite for the first samples, before any training; check its initial "
            f"weights and the scale of the data"
        )
    return logits


@contextmanager
def _forward_errors_as_user_errors(name: str, example: Tensor) -> Iterator[None]:
    """Raise a model's error about its inputs as a `UserError` with the model's name and the inputs' shape."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        shape = " x ".join(str(size) for size in example.shape[1:]) or "a single number"
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"{name} cannot take samples of shape {shape} ({type(error).__name__}: {reason}); use a model for such "
            f"samples or convert the data to the shape that it expects"
        ) from error


def check_image_shape(model: str, input_shape: Sequence[int], smallest_side: int) -> tuple[int, int, int]:
    """Channels, height and width of one sample; a `UserError` if it is no image or too small for the model.

    >>> check_image_shape("lenet", (1, 28, 28), smallest_side=4)
    (1, 28, 28)
    """
    shape = " x ".join(str(size) for size in input_shape)
    if len(input_shape) != 3:
        raise UserError(
            f"model_args.model {model!r} needs images of channels x height x width, but a sample here is "
            f"{shape}; use `model: mlp`, which takes any shape"
        )
    channels, height, width = input_shape
    if min(height, width) < smallest_side:
        raise UserError(
            f"model_args.model {model!r} needs images of at least {smallest_side} x {smallest_side} pixels, "
            f"but a sample here is {shape} (channels x height x width); use `model: mlp` or larger images"
        )
    return channels, height, width


def infer_vocabulary_size(*inputs: Tensor | None) -> int | None:
    """Number of different characters in inputs [N, T] of character indices: the largest index plus one.

    None if the inputs are not such: not two-dimensional, not integers, or negative.

    >>> import torch
    >>> infer_vocabulary_size(torch.tensor([[0, 3, 1]]), torch.tensor([[5, 2, 2]]))
    6
    """
    tensors = [tensor for tensor in inputs if tensor is not None and tensor.numel()]
    if not tensors or any(not _are_indices(tensor) for tensor in tensors):
        return None
    return 1 + max(int(tensor.max()) for tensor in tensors)


def _are_indices(tensor: Tensor) -> bool:
    if tensor.dim() != 2 or bool((tensor < 0).any()):
        return False
    return not tensor.is_floating_point() or bool((tensor == tensor.floor()).all())
