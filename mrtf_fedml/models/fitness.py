"""Does a model fit the data? Found out before the first round, with one forward of a few samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import UserError
from .evaluation import device_of, evaluating
from .positions import check_logits
from .trace import trace


def complete(model: nn.Module, example: Tensor, name: str) -> None:
    """Let lazy layers (`nn.LazyLinear`) see an example, from which they learn their sizes; others need nothing.

    Their initial weights are drawn from the global random state, which is the caller's to fork.
    """
    if any(is_lazy(tensor) for tensor in chain(model.parameters(), model.buffers())):
        # Not in inference mode: weights made there could not be trained.
        with _in_one_sentence(name, example), evaluating(model), torch.no_grad():
            model(example.to(device_of(model), copy=True))


def check_fit(model: nn.Module, example: Tensor, classes: int | None, name: str) -> Tensor:
    """The model's logits for `example`, [N, C] or [N, C, T]; a `UserError` where it does not fit the data.

    The forward is made in eval mode; the model, the example and the global random state are left as they were.

    Args:
        model: any classifier.
        example: a few of the data's inputs.
        classes: C; None takes what the model gives.
        name: what the model is called in messages.
    """
    with _in_one_sentence(name, example):
        _, output = trace(model, example)
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
def _in_one_sentence(name: str, example: Tensor) -> Iterator[None]:
    """Whatever a model says of inputs that it cannot take, told with its name and their shape."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        shape = " x ".join(str(size) for size in example.shape[1:]) or "a single number"
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"{name} cannot take samples of shape {shape} ({type(error).__name__}: {reason}); use a model for such "
            f"samples or bring the data into the shape it wants"
        ) from error
