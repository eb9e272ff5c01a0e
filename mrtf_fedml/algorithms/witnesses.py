"""Witnesses: a few of each client's samples, which never train and tell how far the others flatter a model.

A client that judges by what it trains on finds a model better than it is; in long runs it knows its samples by heart.
A twentieth of them is too little to judge with, since a round's clients would decide by some fifty answers; but what
both say of the same model tells, over some rounds, by how much the clients' estimate is too good. They are called when
clients have begun to learn: a net that is leaving chance needs every sample (docs/estimates.md), and nobody knows by
heart what it was shown before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..randomness import torch_generator
from ..refinery.rectify import relative_loss
from ..settings import MrTFSettings, TrainSettings
from .exchange import ClientTask, Memory
from .judging import CALLED, REFINERY, divided, held_out, kept_back

#: What a client tells by its witnesses: the hits of the base's model, of the refined one, and how many there are, [3].
WITNESSES = REFINERY + "witnesses"
#: A batch of one would join the one before it.
_SMALLEST_BATCH = 2
#: Clients have begun to learn when their mean loss is below this share of log C.
_LEARNING = 0.3
#: No server has a client keep more.
_MOST = 0.5


def kept_from_training(refinery: MrTFSettings, train: TrainSettings) -> tuple[float, float]:
    """The shares of a client's samples that judge alone, and that witness: who judges by the first needs no others."""
    judging = kept_back(refinery, train)
    return judging, 0.0 if judging > 0 else refinery.client_witnesses


def summons(share: float, memory: Memory, local_loss: float, classes: int) -> dict[str, Tensor]:
    """What the server keeps, and tells its clients, from the round on after which they have begun to learn."""
    begun = CALLED in memory or relative_loss(local_loss, classes) < _LEARNING
    return {CALLED: torch.tensor(share, dtype=torch.float64)} if share > 0 and begun else {}


def parted(task: ClientTask, judging: float, seed: int) -> tuple[Iterable[Any], Iterable[Any], Iterable[Any] | None]:
    """A client's samples that train, those that judge, and its witnesses, where the server has called them."""
    training, judged = held_out(task.data, judging, seed, task.client)
    share = float(task.extra[CALLED]) if CALLED in task.extra and judging == 0 else 0.0
    training, witnesses = called(training, min(_MOST, max(0.0, share)), seed, task.client)
    return training, judged, witnesses


def called(data: Any, share: float, seed: int, client: int) -> tuple[Iterable[Any], Iterable[Any] | None]:
    """A client's samples for training, and its witnesses: the same ones in every round and every process.

    They are taken from the last batch and leave some of it, so that a pass over the rest has as many steps as before.
    None where nobody is called: a share of nothing, a client of few samples, a loader that cannot be divided.
    """
    if share == 0.0 or not hasattr(data, "part"):
        return data, None
    last = (data.samples - 1) % data.batch_size + 1
    kept = min(round(share * data.samples), last - _SMALLEST_BATCH)
    if kept <= 0:
        return data, None
    return divided(data, kept, torch_generator(seed, "client witnesses", client))


def differences(votes: Iterable[Sequence[float]], share: float) -> list[tuple[float, float]]:
    """Of each client that has witnesses: how many more of them than of its samples are found, and how many there are.

    Args:
        votes: what clients tell, their witnesses' three numbers last.
        share: how much of the answer is the refined model.

    >>> differences([[6.0, 9.0, 10.0, 1.0, 2.0, 4.0]], 1.0)
    [(-1.6, 4.0)]
    """
    return [
        (found_by(vote[-3:], share) - found_by(vote, share) / vote[2] * vote[-1], vote[-1])
        for vote in votes
        if has_witnesses(vote)
    ]


def found_by(told: Sequence[float], share: float) -> float:
    """The answer's hits, as far as the two that were judged can tell: a model between them has rather more."""
    return (1 - share) * told[0] + share * told[1]


def has_witnesses(vote: Sequence[float]) -> bool:
    """Whether a client's numbers end with its witnesses': beside three of its own, or seven."""
    return len(vote) in (6, 10)
