"""Classes that a model misses even among the clients' own samples: it will miss them among the server's."""

from __future__ import annotations

from collections.abc import Sequence

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
    """The classes that are missed, in a sentence.

    >>> missed(torch.tensor([[90, 30], [90, 2]]), ["well", "ill"])
    "of the clients' own samples of 'ill' this model finds 7%: such samples of the server's, if there are any, get \
another's label; train for more rounds, or give the clients more of them"
    >>> missed(torch.tensor([[90, 30], [90, 20]]), ["well", "ill"])
    """
    places = missed_places(found)
    if found is None or not places:
        return None
    there, hit = found[:, places].sum(dim=1).tolist()
    return (
        f"of the clients' own samples of {listed(repr(class_names[place]) for place in places)} this model finds "
        f"{hit / there:.0%}: such samples of the server's, if there are any, get another's label; train for more "
        "rounds, or give the clients more of them"
    )


def missed_places(found: Tensor | None) -> list[int]:
    """Which classes are missed, beyond chance."""
    if found is None:
        return []
    there, hit = found[0].double().clamp_min(1), found[1].double()
    share = hit / there
    error = (share * (1 - share) / there).sqrt()
    return (found[0].ge(_ENOUGH) & (share + _ERRORS * error).lt(_MISSED)).nonzero().flatten().tolist()
