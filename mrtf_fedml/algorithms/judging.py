"""Clients judge the server's models: they have labels, and score each candidate on samples that they never train on.

What travels: the candidates that a client does not have anyway, down; the hits of each and the number of samples, up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..models.weights import load
from ..randomness import torch_generator
from .exchange import ClientTask, ClientUpdate, ServerState, Weights

_PREFIX = "refinery/"
_BASE, _REFINED = _PREFIX + "base/", _PREFIX + "refined/"
#: What a client tells: its hits with the base's model, with the refined one, and how many answers it asked for.
VOTES = _PREFIX + "votes"

#: Rounds whose votes are kept, and what a round's count against those of the round after it: the models change.
_ROUNDS, _FADING = 5, 0.6
#: A client with fewer samples keeps them all for training.
_LEAST_SAMPLES = 4


def held_out(data: Any, share: float, seed: int, client: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """A client's samples for training, and those for judging: the same ones in every round and every process.

    A loader of the user's own cannot be divided sample by sample. There all samples train and all judge, so what is
    judged looks a little better than it is. A client of very few samples judges nothing.
    """
    if not hasattr(data, "part"):
        return data, data
    kept = 0 if data.samples < _LEAST_SAMPLES else max(1, round(share * data.samples))
    order = torch.randperm(data.samples, generator=torch_generator(seed, "client validation", client))
    # In their own order, so that batches are drawn from the training part as from any shard.
    return data.part(order[kept:].sort().values), data.part(order[:kept].sort().values)


def kept_candidates(state: ServerState, base: Weights, refined: Weights) -> dict[str, Tensor]:
    """What the memory must hold so that the next clients can judge both: what is neither start nor answer."""
    kept: dict[str, Tensor] = {}
    for prefix, weights, others in ((_BASE, base, state.weights), (_REFINED, refined, state.answer)):
        if weights is not others:
            kept |= {prefix + name: value for name, value in weights.items()}
    return kept


def sent_candidates(state: ServerState) -> dict[str, Tensor]:
    """What a client needs to judge, beside the start that it receives anyway."""
    sent = {key: value for key, value in state.memory.items() if key.startswith((_BASE, _REFINED))}
    if not any(key.startswith(_REFINED) for key in sent):
        sent |= {_REFINED + name: value for name, value in state.answer.items()}
    return sent


def received_candidates(task: ClientTask) -> list[Weights]:
    """The base's model and the refined one, as a client has received them; none before the first answer."""
    refined = _named(task.extra, _REFINED)
    return [_named(task.extra, _BASE) or task.start, refined] if refined else []


def without_judging(extra: Weights) -> dict[str, Tensor]:
    """What goes beside the weights for others than the judges."""
    return {name: value for name, value in extra.items() if not name.startswith(_PREFIX)}


def _named(extra: Weights, prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in extra.items() if name.startswith(prefix)}


@torch.inference_mode()
def votes_on(model: nn.Module, candidates: Sequence[Weights], data: Iterable[Any]) -> Tensor:
    """The hits of each candidate on the samples, and how many answers were asked for, [candidates + 1].

    Where the model answers at each of T positions of a sample, every position is an answer.
    """
    told = torch.zeros(len(candidates) + 1, dtype=torch.float64)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    for place, weights in enumerate(candidates):
        load(model, weights)
        told[-1] = 0
        for inputs, labels in data:
            given = model(inputs.to(device)).argmax(dim=1).cpu()
            told[place] += (given == labels.cpu()).sum()
            told[-1] += labels.numel()
    model.train(was_training)
    return told


@dataclass(frozen=True)
class Verdict:
    """What the clients of the last rounds say of the last answers.

    Attributes:
        rounds: the votes of each round, the newest last, as JSON can say them.
        answer: who answers (`mrtf_args.answer`).
    """

    rounds: list[list[list[float]]]
    answer: str = "refined"

    @classmethod
    def after(cls, rounds: list[list[list[float]]], updates: Iterable[ClientUpdate], answer: str) -> Verdict:
        """With one more round; a client that judged nothing has no vote."""
        told = [update.extra[VOTES].double().flatten() for update in updates if VOTES in update.extra]
        newest = [votes.tolist() for votes in told if len(votes) == 3 and float(votes[2]) > 0]
        return cls([*rounds, newest][-_ROUNDS:] if newest else rounds, answer)

    @property
    def base_answers(self) -> bool:
        """Whether the base's model answers and not the refined one: by order, or as the better one beyond chance."""
        if self.answer != "judged":
            return self.answer == "aggregated"
        gain = self._ratio([(vote[1] - vote[0], vote[2]) for vote in self._votes()])
        return gain is not None and gain[0] < -gain[1]

    def estimate(self) -> dict[str, float | None]:
        """The accuracy of the model that answers, by its clients, and the standard error of that."""
        place = 0 if self.base_answers else 1
        estimated = self._ratio([(vote[place], vote[2]) for vote in self._votes()]) or (None, None)
        return {"estimated_accuracy": estimated[0], "estimated_error": estimated[1]}

    def _votes(self) -> list[list[float]]:
        """All votes, the older ones faded."""
        newest = len(self.rounds) - 1
        return [
            [number * _FADING ** (newest - age) for number in vote]
            for age, votes in enumerate(self.rounds)
            for vote in votes
        ]

    def _ratio(self, pairs: list[tuple[float, float]]) -> tuple[float, float] | None:
        """The ratio of two sums, and its standard error with clients as the units: their samples are not alike."""
        total = sum(samples for _, samples in pairs)
        if total <= 0:
            return None
        ratio = sum(hits for hits, _ in pairs) / total
        squares = sum((hits - ratio * samples) ** 2 for hits, samples in pairs)
        clients = len(pairs)
        error = math.sqrt(squares * clients / (clients - 1)) / total if clients > 1 else 1.0
        return ratio, error
