"""Whether the clients' models contradict each other on classes that they know: labels that mean different things do.

A client that knows few classes is wrong about all others, and that is no contradiction. So each model is asked only
about the samples whose label is a class that its client has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..data.listing import listed

#: A client has a class from so many samples on; shares of fewer of the server's samples are chance.
_HAS, _SAMPLES, _SAMPLES_OF_CLASS = 5, 20, 10
#: In runs that go well a model gives the label in 0.65 to 1 of such cases, and the middle one of a round in 0.85 up.
_ODD, _OTHERS, _ALL = 0.5, 0.7, 0.6
#: Two camps on one class: models that nearly always give it, and models that nearly never do and agree on another.
_FOR, _AGAINST, _CAMP, _SAME = 0.75, 0.25, 0.3, 0.6


def contradictions(
    votes: Tensor | None,
    clients: Sequence[int],
    labels: Tensor,
    counts: npt.NDArray[np.int64] | None,
    class_names: Sequence[str],
) -> list[str]:
    """What the last round's models say against each other, a sentence each.

    Args:
        votes: what each model named, [T, M]; None where nobody asked them.
        clients: whose they are, T of them.
        labels: that are given, [M].
        counts: n_{k,c} [K, C], the clients' samples per class; None where they are not known.
        class_names: C of them.
    """
    if votes is None or counts is None or len(votes) != len(clients) or len(clients) < 2:
        return []
    given, said = labels.cpu().numpy(), votes.cpu().numpy()
    knows = counts[list(clients)] >= _HAS
    support: dict[int, float] = {}
    for place, client in enumerate(clients):
        asked = knows[place][given]
        if asked.sum() >= _SAMPLES:
            support[client] = float((said[place][asked] == given[asked]).mean())
    if len(support) < 2:
        return []
    middle = float(np.median(list(support.values())))
    if middle < _ALL:
        return [
            "the clients' models contradict each other: where a client knows the class of a label, its model gives "
            f"that label in {middle:.0%} of the cases only; the clients' labels may mean different things or be wrong, "
            "and so may these"
        ]
    odd = [
        client for client, share in support.items() if share < _ODD and _middle_of_others(support, client) >= _OTHERS
    ]
    sentences = []
    if odd:
        worst = min(support[client] for client in odd)
        whose = (
            f"the model of client {odd[0]} contradicts"
            if len(odd) == 1
            else f"the models of clients {listed(odd)} contradict"
        )
        sentences.append(
            f"{whose} the others' on {1 - worst:.0%} of the samples whose class is known there: labels may be shifted "
            "or wrong there; check them, or leave such a client out"
        )
    heard = [place for place, client in enumerate(clients) if client not in odd]
    pairs = _camps(said[heard], given, knows[heard])
    if pairs:
        named = "; ".join(f"{class_names[one]!r} is {class_names[other]!r} to some" for one, other in pairs[:3])
        sentences.append(
            f"the clients' models are of two minds ({named}): these classes may be swapped at some clients; do not "
            "trust these labels before that is settled"
        )
    return sentences


def _middle_of_others(support: dict[int, float], client: int) -> float:
    return float(np.median([share for other, share in support.items() if other != client]))


def _camps(
    said: npt.NDArray[np.int64], given: npt.NDArray[np.int64], knows: npt.NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """The classes on whose samples the models that know them fall into two camps, with what the second camp says."""
    found = []
    for label in np.unique(given):
        rows = given == label
        models = np.flatnonzero(knows[:, label])
        if rows.sum() < _SAMPLES_OF_CLASS or len(models) < 4:
            continue
        shares = (said[models][:, rows] == label).mean(axis=1)
        against = models[shares < _AGAINST]
        if len(against) < max(2, _CAMP * len(models)) or (shares > _FOR).sum() < max(2, _CAMP * len(models)):
            continue
        theirs = np.bincount(said[against][:, rows].ravel())
        other = int(theirs.argmax())
        # They know the other class too: a model that never saw it cannot take one for the other. And they take that one
        # for this: a class that is hard to tell is mistaken in one direction, and swapped names in both.
        back = said[against][:, given == other]
        swapped = back.size == 0 or (back == label).mean() >= _SAME
        if theirs[other] >= _SAME * theirs.sum() and knows[against, other].all() and swapped:
            found.append((int(label), other))
    return found
