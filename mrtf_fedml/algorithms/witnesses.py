"""Witnesses: a few of each client's samples, which never train and tell how far the others flatter a model.

A client that judges by what it trains on finds a model better than it is; in long runs it knows its samples by heart.
A twentieth of them is too little to judge with, since a round's clients would decide by some fifty answers; but what
both say of the same model tells, over some rounds, by how much the clients' estimate is too good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..randomness import torch_generator
from ..settings import MrTFSettings, TrainSettings
from .exchange import ClientTask
from .judging import REFINERY, held_out, kept_back

#: What a client tells by its witnesses: the hits of the base's model, of the refined one, and how many there are, [3].
WITNESSES = REFINERY + "witnesses"
#: A batch of one would join the one before it.
_SMALLEST_BATCH = 2


def kept_from_training(refinery: MrTFSettings, train: TrainSettings) -> tuple[float, float]:
    """The shares of a client's samples that judge alone, and that witness: who judges by the first needs no others."""
    judging = kept_back(refinery, train)
    return judging, 0.0 if judging > 0 else refinery.client_witnesses


def parted(
    task: ClientTask, judging: float, witnessing: float, seed: int
) -> tuple[Iterable[Any], Iterable[Any], Iterable[Any] | None]:
    """A client's samples that train, those that judge, and its witnesses, by `kept_from_training`."""
    training, judged = held_out(task.data, judging, seed, task.client)
    training, witnesses = called(training, witnessing, seed, task.client)
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
    order = torch.randperm(data.samples, generator=torch_generator(seed, "client witnesses", client))
    return data.part(order[kept:].sort().values), data.part(order[:kept].sort().values)


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
