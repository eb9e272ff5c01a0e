"""Clients judge the server's models: they have labels, and score each candidate on samples of their own.

What travels down: the candidates that a client does not have anyway, and where they are asked to judge for the server's
classes the shares of these. What travels up is in `votes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..randomness import torch_generator
from ..settings import MrTFSettings, TrainSettings
from .exchange import ClientTask, ServerState, Weights

#: What is the refinery's, in memory and in messages, stands under this prefix; the rest is the base's.
REFINERY = "refinery/"
_BASE, _REFINED = REFINERY + "base/", REFINERY + "refined/"
#: The shares of the classes that the last targets name, [C], where clients judge for the server's classes.
CLASSES = REFINERY + "classes"
#: The share of its samples that a client is to keep as witnesses, once they are called (`witnesses.py`).
CALLED = REFINERY + "called"

#: What a client keeps back where it must and nothing else is said.
_KEPT_BACK = 0.1
#: A client with fewer samples keeps them all for training.
_LEAST_SAMPLES = 4
#: What needs clients that judge: by key the wish, None for any number above 0, and what it becomes where none does.
_NEED_JUDGES: dict[str, tuple[str | None, Any]] = {
    "answer": ("judged", "refined"),
    "feedback": ("judged", "never"),
    "estimate_classes": ("server", "clients"),
    "client_witnesses": (None, 0.0),
}


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
            f"promised; leave clip, sigma and enable_dp out, or {asked[0]}"
        )
    # Without a step of refining there is one model only, and everything is the base's, to the bit.
    judging = judging and not private and refinery.refine_steps > 0
    refinery = replace(refinery, client_judgement=judging)
    for key, (wish, instead) in _NEED_JUDGES.items():
        value = getattr(refinery, key)
        if judging or not (value > 0 if wish is None else value == wish):
            continue
        if is_given(key) and refinery.refine_steps > 0:
            raise UserError(
                f"{section}.{key} is {value!r} but no client judges; set client_judgement to true, or {key} to "
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
    return divided(data, kept, torch_generator(seed, "client validation", client))


def divided(data: Any, kept: int, generator: torch.Generator) -> tuple[Iterable[Any], Iterable[Any]]:
    """A shard without so many samples that are drawn, and these."""
    order = torch.randperm(data.samples, generator=generator)
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
    sent = {key: value for key, value in state.memory.items() if key.startswith((_BASE, _REFINED, CLASSES, CALLED))}
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
