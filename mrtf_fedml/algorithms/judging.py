"""Clients judge the server's models: they have labels, and score each candidate on samples of their own.

What travels: the candidates that a client does not have anyway, down; the hits of each and the number of samples, up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models.weights import load
from ..randomness import torch_generator
from ..settings import MrTFSettings, TrainSettings
from .exchange import ClientTask, ClientUpdate, ServerState, Weights

#: What is the refinery's, in memory and in messages, stands under this prefix; the rest is the base's.
REFINERY = "refinery/"
_BASE, _REFINED = REFINERY + "base/", REFINERY + "refined/"
#: What a client tells: its hits with the base's model, with the refined one, and how many answers it asked for.
VOTES = REFINERY + "votes"

#: Rounds whose votes are kept, and what a round's count against those of the round after it. Which of two models is
#: better changes slowly, and is told by many; how good they are changes fast while they learn.
_ROUNDS, _FADING, _FADING_FAST = 5, 0.6, 0.3
#: Standard errors by which the base's model must be found better to answer in the refined one's place. With one, chance
#: chose it too often: clients flatter the model that was trained on their samples (docs/evidence.md).
_BEYOND_CHANCE = 2.0
#: The gain in accuracy from which on the refined model is sent back as far as `adaptive` would.
_MUCH_BETTER = 0.2
#: What a client keeps back where it must and nothing else is said.
_KEPT_BACK = 0.1
#: Nobody asks a model for more; counts up to here are whole numbers.
_MOST_ANSWERS = 2.0**53
#: A client with fewer samples keeps them all for training.
_LEAST_SAMPLES = 4


def settled(refinery: MrTFSettings, section: str, is_given: Callable[[str], bool], private: bool) -> MrTFSettings:
    """The settings by which clients judge. Where they cannot, a preset's wish gives way and a user's own is refused.

    Args:
        refinery: as the user and the preset have it.
        section: where its keys are written.
        is_given: whether the user has written a key himself.
        private: whether privacy is promised (dp_args).
    """
    judging = refinery.client_judgement or (refinery.client_validation or 0.0) > 0
    asked = [key for key in ("client_judgement", "client_validation") if is_given(key) and getattr(refinery, key)]
    if private and asked:
        raise UserError(
            f"{section}.{asked[0]}: what clients find of a model is told without noise, so no privacy (dp_args) can be "
            f"promised; leave clip and sigma out, or {asked[0]}"
        )
    # Without a step of refining there is one model only, and everything is the base's, to the bit.
    judging = judging and not private and refinery.refine_steps > 0
    refinery = replace(refinery, client_judgement=judging)
    for key, instead in (("answer", "refined"), ("feedback", "never")):
        if getattr(refinery, key) == "judged" and not judging:
            if is_given(key) and refinery.refine_steps > 0:
                raise UserError(
                    f"{section}.{key} is 'judged' but no client judges; set client_judgement to true, or {key} to "
                    f"{instead}"
                )
            changed: dict[str, Any] = {key: instead}
            refinery = replace(refinery, **changed)
    return refinery


def unless_asked_to_judge(given: Mapping[str, Any]) -> dict[str, Any]:
    """Where clients cannot judge: a preset's wish is dropped; a user's own is kept, and refused later on."""
    asked = given.get("client_judgement") or given.get("client_validation")
    return {} if asked else {"client_judgement": False}


def kept_back(refinery: MrTFSettings, train: TrainSettings) -> float:
    """The share of a client's samples that judge and never train: who takes part in every round has just learnt all."""
    given, all_take_part = refinery.client_validation, train.client_num_per_round == train.client_num_in_total
    return given if given is not None else _KEPT_BACK if all_take_part else 0.0


def held_out(data: Any, share: float, seed: int, client: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """A client's samples for training, and those for judging: the same ones in every round and every process.

    Where nothing is kept back, all samples train and all judge, and what is judged looks a little better than it is. So
    it is with a loader of the user's own, which cannot be divided. A client of very few samples judges nothing.
    """
    if share == 0.0 or not hasattr(data, "part"):
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
    return {name: value for name, value in extra.items() if not name.startswith(REFINERY)}


def _named(extra: Weights, prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in extra.items() if name.startswith(prefix)}


def unusable_votes(update: ClientUpdate) -> str | None:
    """Why a client's votes cannot be counted; None where they can, or where there are none.

    >>> unusable_votes(ClientUpdate(0, 9, {}, None, {VOTES: torch.tensor([9.0, 3.0, 2.0])}))
    'its votes on the models are no hits among samples'
    """
    votes = update.extra.get(VOTES)
    if votes is None:
        return None
    counts = votes.double().flatten().tolist()
    counted = len(counts) == 3 and 0 <= max(counts[:2]) <= counts[2] <= _MOST_ANSWERS and min(counts) >= 0
    return None if counted else "its votes on the models are no hits among samples"


@torch.inference_mode()
def votes_on(model: nn.Module, candidates: Sequence[Weights], data: Iterable[Any]) -> Tensor:
    """The hits of each candidate on the samples, and how many answers were asked for, [candidates + 1].

    Where the model answers at each of T positions of a sample, every position is an answer.
    """
    hits = torch.zeros(len(candidates) + 1, dtype=torch.float64)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    for place, weights in enumerate(candidates):
        load(model, weights)
        hits[-1] = 0
        for inputs, labels in data:
            given = model(inputs.to(device)).argmax(dim=1).cpu()
            hits[place] += (given == labels.cpu()).sum()
            hits[-1] += labels.numel()
    model.train(was_training)
    return hits


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
        received = [update.extra[VOTES].double().flatten() for update in updates if VOTES in update.extra]
        newest = [votes.tolist() for votes in received if float(votes[2]) > 0]
        return cls([*rounds, newest][-_ROUNDS:] if newest else rounds, answer)

    @property
    def base_answers(self) -> bool:
        """Whether the base's model answers and not the refined one: by order, or as the better one beyond chance."""
        if self.answer != "judged":
            return self.answer == "aggregated"
        gain = self._gain()
        return gain is not None and gain[0] < -_BEYOND_CHANCE * gain[1]

    @property
    def worth_sending_back(self) -> float:
        """How much better the clients find the refined model, beyond chance: 0 not at all, 1 by a fifth or more."""
        gain = self._gain()
        return 0.0 if gain is None else min(1.0, max(0.0, gain[0] - gain[1]) / _MUCH_BETTER)

    def estimate(self) -> dict[str, float | None]:
        """The accuracy of the model that answers, by its clients, and the standard error of that."""
        place = 0 if self.base_answers else 1
        estimated = self._ratio([(vote[place], vote[2]) for vote in self._votes(_FADING_FAST)]) or (None, None)
        return {"estimated_accuracy": estimated[0], "estimated_error": estimated[1]}

    def comparison(self) -> dict[str, float | None]:
        """What the clients gain by the refined model, the standard error of that, and whether it is it that answers."""
        gain = self._gain() or (None, None)
        refined = not self.base_answers
        return {"estimated_gain": gain[0], "estimated_gain_error": gain[1], "refined_answers": int(refined)}

    def _gain(self) -> tuple[float, float] | None:
        """How much more often the refined model is right than the base's, and the standard error of that."""
        return self._ratio([(vote[1] - vote[0], vote[2]) for vote in self._votes()])

    def _votes(self, fading: float = _FADING) -> list[list[float]]:
        """All votes, the older ones faded."""
        newest = len(self.rounds) - 1
        return [
            [number * fading ** (newest - age) for number in vote]
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
