"""What a client tells of the models that it judges: how often each is right on samples of its own.

Three numbers: its hits with the base's model, with the refined one, and how many answers it asked for. Where the server
has told the shares of the classes that it names, four more: the same three, weighed as if the client had its classes in
these shares, and how far the refined model names the client's samples as it names the server's. By its witnesses, apart
from these, the plain three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..models.weights import load
from .exchange import ClientTask, ClientUpdate, Weights
from .judging import CLASSES, REFINERY, received_candidates
from .witnesses import WITNESSES

#: What a client tells, [3] or [7].
VOTES = REFINERY + "votes"

#: Of a class that a client has less of, in equal shares, each sample counts as if it had so much: one sample alone must
#: not speak for its class.
_LEAST_HELD = 0.5
#: Nobody asks a model for more; counts up to here are whole numbers.
_MOST_ANSWERS = 2.0**53
#: What rounding may add to a weighed sum.
_ROUNDING = 1e-6


def told_votes(
    model: nn.Module, task: ClientTask, judged: Iterable[Any], witnesses: Iterable[Any] | None = None
) -> dict[str, Tensor]:
    """What a client tells of the models that it has received, by these samples; nothing before the first answer."""
    candidates = received_candidates(task)
    if not candidates:
        return {}
    told = {VOTES: votes_on(model, candidates, judged, task.extra.get(CLASSES))}
    return told if witnesses is None else {**told, WITNESSES: votes_on(model, candidates, witnesses)}


@torch.inference_mode()
def votes_on(
    model: nn.Module, candidates: Sequence[Weights], data: Iterable[Any], shares: Tensor | None = None
) -> Tensor:
    """The hits of each candidate on the samples, and how many answers were asked for, [candidates + 1].

    With the server's `shares` of the classes, s [C], the same again, weighed by `class_weights`; and, m_c being how
    often the last candidate has named class c, sum_c s_c m_c / sum_c s_c^2: the number of the answers if they are named
    as the server's are. Where the model answers at each of T positions of a sample, every position is an answer.
    """
    totals = torch.zeros(len(candidates) + 1, dtype=torch.float64)
    # Of each class: the hits of each candidate, what there is, and what the candidate has named.
    by_class = None if shares is None else torch.zeros(len(totals) + 1, len(shares), dtype=torch.float64)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    for place, weights in enumerate(candidates):
        load(model, weights)
        totals[-1] = 0
        if by_class is not None:
            by_class[-2:] = 0
        for inputs, labels in data:
            wanted, given = labels.cpu(), model(inputs.to(device)).argmax(dim=1).cpu()
            right = given == wanted
            totals[place] += right.sum()
            totals[-1] += labels.numel()
            if by_class is not None:
                for row, those in ((place, wanted[right]), (-2, wanted), (-1, given)):
                    by_class[row] += _counted(those, by_class.shape[1])
    model.train(was_training)
    if shares is None or by_class is None:
        return totals
    known = shares.double()
    weighed = (by_class[:-1] * class_weights(by_class[-2], known)).sum(dim=1)
    alike = (by_class[-1] * known).sum() / (known * known).sum()
    return torch.cat([totals, weighed, alike[None]])


def class_weights(held: Tensor, shares: Tensor) -> Tensor:
    """w_c = pi_c n / max(n_c, n / 2C): what a client's sample of class c counts for a server with these classes.

    A client whose classes have the server's shares counts all samples once. One that has none of the server's classes
    has nearly no say: the sum over its samples is n times the share of the server's classes that it has.

    Args:
        held: n_c, the client's samples of each class, [C].
        shares: pi, what the server's classes are thought to be, [C].

    >>> class_weights(torch.tensor([30, 10, 0, 0]), torch.tensor([0.25, 0.25, 0.5, 0.0])).tolist()
    [0.3333333333333333, 1.0, 4.0, 0.0]
    """
    counts = held.double()
    least = _LEAST_HELD / len(counts) * counts.sum()
    return shares.double() * counts.sum() / counts.clamp_min(max(1.0, float(least)))


def unusable_votes(update: ClientUpdate) -> str | None:
    """Why a client's votes cannot be counted; None where they can, or where there are none.

    >>> unusable_votes(ClientUpdate(0, 9, {}, None, {VOTES: torch.tensor([9.0, 3.0, 2.0])}))
    'its votes on the models are no hits among samples'
    """
    votes = update.extra.get(VOTES)
    if votes is None:
        return None
    counts = votes.double().flatten().tolist()
    counted = len(counts) in (3, 7) and _are_hits(counts[:3], _MOST_ANSWERS)
    if counted and len(counts) == 7:
        # Who has all of the server's classes has its whole say; nobody has more.
        counted = _are_hits(counts[3:6], counts[2]) and 0 <= counts[6] <= _MOST_ANSWERS
    if counted and WITNESSES in update.extra:
        witnesses = update.extra[WITNESSES].double().flatten().tolist()
        counted = len(witnesses) == 3 and _are_hits(witnesses, counts[2])
    return None if counted else "its votes on the models are no hits among samples"


def _are_hits(told: Sequence[float], most: float) -> bool:
    *hits, answers = told
    return min(told) >= 0 and max(hits) <= answers * (1 + _ROUNDING) and answers <= most * (1 + _ROUNDING)


def _counted(labels: Tensor, classes: int) -> Tensor:
    """How many there are of each class, [C]; a label that is none of the classes is not counted."""
    known = labels.long().flatten()
    return torch.bincount(known[(known >= 0) & (known < classes)], minlength=classes)
