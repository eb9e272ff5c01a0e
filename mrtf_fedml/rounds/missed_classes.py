"""Classes that a model misses even among the clients' own samples: it will miss them among the server's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..data.listing import listed
from ..models.inference import predict_logits

#: A class is missed where fewer of its samples are found, beyond chance. In runs that went well 0.7 were found or more.
_MISSED = 0.25
#: Of fewer samples no share is told.
_ENOUGH = 10
_ERRORS = 2.0


def found_of_classes(model: nn.Module, inputs: Tensor, labels: Tensor, classes: int) -> Tensor | None:
    """How many samples there are of each class, and how many of these the model finds, [2, C].

    None where the model does not give one answer per sample, or there is a label that is none of the classes.
    """
    given = predict_logits(model, inputs).argmax(dim=1).cpu()
    if given.shape != labels.shape or not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        return None
    right = labels[given == labels]
    return torch.stack([torch.bincount(part.long(), minlength=classes) for part in (labels, right)])


def missed(found: Tensor | None, class_names: Sequence[str]) -> str | None:
    """The classes that are missed.

    >>> missed(torch.tensor([[90, 30], [90, 2]]), ["well", "ill"])
    "of the clients' own samples of 'ill' this model finds 7%: the server's samples of that class, if there are any, \
get another's label; train for more rounds, or give the clients more samples of it"
    >>> missed(torch.tensor([[90, 30], [90, 20]]), ["well", "ill"])
    """
    if found is None:
        return None
    there, hit = (part.double().numpy() for part in found)
    share = hit / np.maximum(there, 1)
    error = np.sqrt(np.maximum(share * (1 - share), 1e-12) / np.maximum(there, 1))
    places = np.flatnonzero((there >= _ENOUGH) & (share + _ERRORS * error < _MISSED))
    if not len(places):
        return None
    whole = hit[places].sum() / there[places].sum()
    return (
        f"of the clients' own samples of {listed(repr(class_names[place]) for place in places)} this model finds "
        f"{whole:.0%}: the server's samples of that class, if there are any, get another's label; train for more "
        "rounds, or give the clients more samples of it"
    )
