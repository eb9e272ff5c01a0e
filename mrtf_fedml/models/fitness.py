"""Does a model fit the data? Found out before the first round, with one forward of a few samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import UserError
from .positions import check_logits
from .trace import trace


def check_fit(model: nn.Module, example: Tensor, classes: int | None, name: str) -> Tensor:
    """The model's logits for `example`, [N, C] or [N, C, T]; a `UserError` where it does not fit the data.

    The forward is made in eval mode; the model, the example and the global random state are left as they were.

    Args:
        model: any classifier.
        example: a few of the data's inputs.
        classes: C; None takes what the model gives.
        name: what the model is called in messages.
    """
    shape = " x ".join(str(size) for size in example.shape[1:]) or "a single number"
    try:
        _, output = trace(model, example)
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"{name} cannot take samples of shape {shape} ({type(error).__name__}: {reason}); use a model for such "
            f"samples or bring the data into the shape it wants"
        ) from error
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
