"""Client validation: each client holds out a part of its labelled samples and evaluates the server's models on it.

In a round a client counts how many of the held-out samples two candidates classify correctly, the base's last model and
the refined one, and each of its models where clients have different ones; these counts select what is broadcast and
what predicts (`ValidationSummary`). After the last round
the clients evaluate the model that predicts (`EvaluationCounts`), which gives the accuracy estimate
(`diagnostics/accuracy_estimate.py`), and count all of their samples in cells of the input space, which shows whether
the server's samples differ (`diagnostics/unknown_classes.py`). All that a client reports are integer counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...models.group import member_names, with_member
from ...rng import torch_generator
from ..base import Algorithm
from ..evaluation import EvaluationCounts, evaluate, predictions_of, weight_caps
from ..input_cells import InputCells
from ..server_context import ServerContext
from ..types import ClientTask, ClientUpdate, Memory, Metric, Payload, RoundReport, ServerState, Weights
from ..wrapper import AlgorithmWrapper

#: In the server's memory and in payloads, what belongs to the validation has this prefix; the rest is the base's.
PREFIX = "validation/"
_BASE, _REFINED = PREFIX + "base/", PREFIX + "refined/"
_HISTORY = PREFIX + "history"
#: The number of samples that each client announced with its first update: later counts cannot exceed it.
_ANNOUNCED = PREFIX + "announced"
#: How many predictions the model makes per sample: one, or one per position of a sequence.
_POSITIONS = PREFIX + "positions"
#: Present where clients evaluate the samples that they train on.
_COUNTS_TRAINING = PREFIX + "counts_training"
#: The number of classes, after the last round: the clients evaluate the weights that they receive, and do not train.
_IS_EVALUATION = PREFIX + "is_evaluation"
#: Begins the names of the cells in which clients count their samples, in that evaluation.
_CELLS = PREFIX + "cells/"
#: The name of a client's counts in its payload.
COUNTS = PREFIX + "counts"

#: A client with fewer samples uses all of them for training.
_LEAST_SAMPLES = 4
#: Rounds whose counts are used: which of two models is better changes slowly and needs many counts.
_ROUNDS = 5
#: Standard errors by which the base's model must be better to predict in place of the refined one. With one, chance
#: selected it too often (docs/lab/choices.md).
_BEYOND_CHANCE = 2.0
#: The refined model's share where clients find both models equal: a mix of two different models makes fewer errors.
#: Where it may be better by the second number, within the standard error, the refined one predicts alone.
_EQUAL_SHARE, _CLEARLY_BETTER = 0.5, 0.04
#: The gain in accuracy from which on the refined model is broadcast in full.
_MUCH_BETTER = 0.2

#: What `ValidationSummary.metrics` reports.
VALIDATION_METRICS = (
    Metric("estimated_accuracy", "estimated accuracy", in_progress=True),
    Metric("estimated_accuracy_stderr", "standard error of the estimated accuracy"),
    Metric("estimated_gain", "gain by refining, as the clients estimate it"),
    Metric("estimated_gain_stderr", "standard error of the estimated gain"),
    Metric("refined_share", "share of the refined model in the model that predicts"),
    Metric("predicting_model", "index of the one of `models`, sorted by name, that predicts alone; none: their mean"),
)


@dataclass(frozen=True)
class CandidateCounts:
    """What a client reports of the candidates in a round; it travels as a tensor of these integers.

    Attributes:
        samples: held-out samples that were classified; with T positions per sample, each counts.
        base_correct: those that the base's model classifies correctly.
        refined_correct: those that the refined model classifies correctly.
        members_correct: those that each refined member of a group of models classifies correctly; else empty.
    """

    samples: int
    base_correct: int
    refined_correct: int
    members_correct: tuple[int, ...] = ()

    @classmethod
    def of(cls, numbers: Sequence[int]) -> CandidateCounts:
        """From the integers in their order."""
        samples, base, refined, *members = numbers
        return cls(samples, base, refined, tuple(members))

    @classmethod
    def from_tensor(cls, tensor: Tensor, most: float, members: int = 0) -> CandidateCounts | None:
        """The counts in a received tensor; None where these are no counts of at most `most` samples.

        >>> CandidateCounts.from_tensor(torch.tensor([4, 1, 2]), most=4)
        CandidateCounts(samples=4, base_correct=1, refined_correct=2, members_correct=())
        >>> CandidateCounts.from_tensor(torch.tensor([4, 1, 5]), most=4)
        """
        if tensor.is_floating_point() or tensor.shape != (3 + members,):
            return None
        counts = cls.of(tensor.tolist())
        correct = (counts.base_correct, counts.refined_correct, *counts.members_correct)
        return counts if min(correct) >= 0 and max(correct) <= counts.samples <= most else None


class ClientValidation(AlgorithmWrapper):
    """The base, with clients that hold out samples and evaluate the server's last candidates before they train.

    `propose` stores the models that the next clients evaluate; `ValidationSummary.of` reads what they found.
    """

    name: ClassVar[str] = "ClientValidation"
    allows_different_models: ClassVar[bool] = True
    prefix: ClassVar[str] = PREFIX

    def __init__(self, base: Algorithm, fraction: float) -> None:
        """Wrap the base; a `fraction` of each client's samples is held out from training."""
        super().__init__(base.settings)
        self.inner = base
        self.fraction = fraction

    def has_own_client_rule(self) -> bool:
        """Its clients do more than train."""
        return True

    def propose(self, state: ServerState, base: Weights, refined: Weights, positions: int | None) -> ServerState:
        """The state with the candidates that the next clients evaluate.

        Args:
            state: after the round; what it broadcasts or predicts with is not stored twice.
            base: the base's model.
            refined: the refined model.
            positions: predictions per sample; None where there is one.
        """
        candidates: dict[str, Any] = {_POSITIONS: positions or 1}
        for prefix, weights, stored in ((_BASE, base, state.weights), (_REFINED, refined, state.prediction_weights)):
            if weights is not stored:
                candidates |= {prefix + name: value for name, value in weights.items()}
        return replace(state, memory={**state.memory, **candidates})

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """The base's, and the candidates that a client does not receive anyway; none before the first round's end."""
        if _IS_EVALUATION in state.memory:
            return {
                name: value for name, value in state.memory.items() if name == _IS_EVALUATION or name.startswith(_CELLS)
            }
        payload = super().client_payload(state, client)
        if state.round == 0:
            return payload
        sent = {name: value for name, value in state.memory.items() if name.startswith((_BASE, _REFINED))}
        if not any(name.startswith(_REFINED) for name in sent):
            sent |= {_REFINED + name: value for name, value in state.prediction_weights.items()}
        return {**payload, **sent}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Evaluate the candidates on the held-out samples, then train by the base's rule on the others.

        In the evaluation after the last round: evaluate the model that predicts, and do not train.
        """
        training, validation = train_validation_split(task.data, self.fraction, self.seed, task.client)
        if _IS_EVALUATION in task.payload:
            # Samples that were trained on would give a wrong estimate.
            held_out = () if validation is training else validation
            classes, cells = int(task.payload[_IS_EVALUATION]), InputCells.from_payload(task.payload, _CELLS)
            counts = evaluate(model, task.weights, held_out, classes, task.data, cells).to_payload()
            return ClientUpdate(task.client, task.samples, task.weights, None, counts)
        counts = {}
        refined = _with_prefix(task.payload, _REFINED)
        if refined:
            members = [with_member(refined, index) for index in range(len(member_names(refined)))]
            candidates = [_with_prefix(task.payload, _BASE) or task.weights, refined, *members]
            counts[COUNTS] = count_correct(model, candidates, validation)
        update = self.inner.train_client(model, replace(task, data=training, payload=self.inner_entries(task.payload)))
        return replace(update, payload={**update.payload, **counts})

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Counts must be possible for the number of samples that the client announced at first."""
        announced = state.memory.get(_ANNOUNCED, {}).get(str(update.client), update.samples)
        most = float(min(update.samples, announced)) * state.memory.get(_POSITIONS, 1)
        if _IS_EVALUATION in state.memory:
            classes = int(state.memory[_IS_EVALUATION])
            cells = InputCells.from_payload(state.memory, _CELLS)
            reported = EvaluationCounts.from_payload(update.payload)
            if reported is None or not reported.is_possible(classes, most, cells):
                return "its evaluation counts are not counts of its samples"
            return None
        counts, members = update.payload.get(COUNTS), len(member_names(state.weights))
        if counts is not None and CandidateCounts.from_tensor(counts, most, members) is None:
            return "its validation counts are not counts of its samples"
        return super().validate_update(state, update)

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """The base's; the memory keeps the counts of the last rounds, and what each client announced at first."""
        newest = [update.payload[COUNTS].tolist() for update in updates if COUNTS in update.payload]
        newest = [counts for counts in newest if counts[0] > 0]
        history = [*state.memory.get(_HISTORY, []), newest][-_ROUNDS:] if newest else state.memory.get(_HISTORY, [])
        inner_updates = [self.inner_update(update) for update in updates]
        after, report = self.inner.server_update(self.inner_state(state), inner_updates, aggregated, server)
        announced = {str(update.client): update.samples for update in updates}
        announced |= state.memory.get(_ANNOUNCED, {})
        memory = {**after.memory, _HISTORY: history, _ANNOUNCED: announced}
        # Most clients: one that claims it does not take the estimate from the others.
        counts_training = 2 * sum(self._counts_training_samples(state, update) for update in updates) > len(updates)
        if counts_training or (not newest and state.memory.get(_COUNTS_TRAINING)):
            memory[_COUNTS_TRAINING] = True
        return replace(after, memory=memory), report

    @staticmethod
    def _counts_training_samples(state: ServerState, update: ClientUpdate) -> bool:
        """Whether a client has evaluated all of its samples: it holds none out, as with a user's own loader."""
        if COUNTS not in update.payload:
            return False
        return int(update.payload[COUNTS][0]) >= max(1, update.samples) * int(state.memory.get(_POSITIONS, 1))

    def evaluation_state(self, state: ServerState, server: ServerContext) -> ServerState | None:
        """Clients receive the weights that predict; None where they hold no samples out."""
        if self.fraction == 0.0:
            return None
        memory: dict[str, Any] = {_IS_EVALUATION: server.classes, _POSITIONS: server.positions or 1}
        memory[_ANNOUNCED] = state.memory.get(_ANNOUNCED, {})
        cells = None if server.positions is not None else InputCells.fit(server.inputs, server.classes)
        memory |= {} if cells is None else cells.to_payload(_CELLS)
        return replace(state, weights=state.prediction_weights, memory=memory)


def train_validation_split(data: Any, fraction: float, seed: int, client: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """A client's training samples and its held-out samples: the same ones in every round and every process.

    Stratified: each class gives its share as far as it has two samples, and keeps at least one for training. With a
    fraction of 0 all samples are in both, and the validation is optimistic; so it is with a loader of the user's own,
    which cannot be split. A client with fewer than four samples holds out none.
    """
    if fraction == 0.0 or not hasattr(data, "part"):
        return data, data
    held_out = 0 if data.samples < _LEAST_SAMPLES else max(1, round(fraction * data.samples))
    generator = torch_generator(seed, "client validation", client)
    order = torch.randperm(data.samples, generator=generator)
    if data.labels.ndim == 1:
        order = _stratify(order, data.labels.cpu(), generator)
    # In their own order, so that batches are drawn from the training part as from any shard.
    return data.part(order[held_out:].sort().values), data.part(order[:held_out].sort().values)


def _stratify(order: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """The samples in an order in which the first ones have each class in its proportion, and no class whole.

    Systematic sampling: the i-th of a class's n samples is at (i + u) / n, u drawn per class; the last one comes late.
    """
    position = torch.empty(len(order), dtype=torch.float64)
    for label in labels.unique():
        rows = order[labels[order] == label]
        start = torch.rand((), generator=generator, dtype=torch.float64)
        position[rows] = (torch.arange(len(rows), dtype=torch.float64) + start) / len(rows)
        position[rows[-1]] += 1.0
    return order[position[order].argsort(stable=True)]


@torch.inference_mode()
def count_correct(model: nn.Module, candidates: Sequence[Weights], data: Iterable[Any]) -> Tensor:
    """The number of samples, and how many of them each candidate classifies correctly, [1 + candidates].

    Args:
        model: reusable; its weights are overwritten.
        candidates: the base's weights, then the refined ones, then those of each member of a group of models.
        data: batches of samples and labels.
    """
    counts = torch.zeros(1 + len(candidates), dtype=torch.int64)
    for index, weights in enumerate(candidates, start=1):
        counts[0] = 0
        for logits, labels in predictions_of(model, weights, data):
            counts[0] += labels.numel()
            counts[index] += (logits.argmax(dim=1) == labels).sum()
    return counts


@dataclass(frozen=True)
class ValidationSummary:
    """What the clients of the last rounds found, the newest round last.

    Attributes:
        rounds: the clients' counts.
        counts_training: whether clients counted samples that they train on, so that these give no accuracy.
    """

    rounds: list[list[CandidateCounts]]
    counts_training: bool = False

    @classmethod
    def of(cls, memory: Memory) -> ValidationSummary:
        """From the server's memory."""
        rounds = [[CandidateCounts.of(counts) for counts in clients] for clients in memory.get(_HISTORY, [])]
        return cls(rounds, bool(memory.get(_COUNTS_TRAINING)))

    def prediction_share(self) -> float:
        """The refined model's share in the model that predicts: 0 where the base's is better beyond chance, else 0.5-1.

        A half where the clients are sure that both are equal, and more the better the refined one may be. 1 where one
        member of a group predicts alone.
        """
        gain = self.gain()
        if gain is None or self.preferred_member() is not None:
            return 1.0
        if gain[0] < -_BEYOND_CHANCE * gain[1]:
            return 0.0
        return min(1.0, max(_EQUAL_SHARE, _EQUAL_SHARE + (1 - _EQUAL_SHARE) * sum(gain) / _CLEARLY_BETTER))

    def preferred_member(self) -> int | None:
        """The index of the member of a group that is better than both candidates, beyond chance; None if none is."""
        counts = [each for clients in self.rounds for each in clients if each.members_correct]
        found = []
        for index in range(len(counts[0].members_correct) if counts else 0):
            gains = [
                _ratio([(each.members_correct[index] - getattr(each, rival), each.samples) for each in counts])
                for rival in ("base_correct", "refined_correct")
            ]
            if all(gain is not None and gain[0] > _BEYOND_CHANCE * gain[1] for gain in gains):
                found.append((sum(each.members_correct[index] for each in counts), index))
        return max(found)[1] if found else None

    def broadcast_share(self, least: float = 0.0) -> float:
        """How much better than by `least` the clients find the refined model, beyond chance: 1 from a fifth on."""
        gain = self.gain()
        return 0.0 if gain is None else min(1.0, max(0.0, gain[0] - gain[1] - least) / (_MUCH_BETTER - least))

    def gain(self) -> tuple[float, float] | None:
        """The refined model's accuracy minus that of the base's, and its standard error; None where nobody counted."""
        counts = [each for clients in self.rounds for each in clients]
        return _ratio([(each.refined_correct - each.base_correct, each.samples) for each in counts])

    def metrics(self, refined_share: float, is_held_out: bool) -> dict[str, float | None]:
        """The gain by refining, and the accuracy on held-out samples of the last round's model, as far as known.

        Args:
            refined_share: of the refined model in the model that predicts.
            is_held_out: whether clients validate on samples that they do not train on; else no accuracy is reported.
        """
        gain, member = self.gain() or (None, None), self.preferred_member()
        accuracy = None
        if is_held_out and not self.counts_training and self.rounds:
            correct = [
                (1 - refined_share) * each.base_correct + refined_share * each.refined_correct
                if member is None
                else each.members_correct[member]
                for each in self.rounds[-1]
            ]
            samples = [each.samples for each in self.rounds[-1]]
            accuracy = _with_least_error(_ratio(list(zip(correct, samples, strict=True))), sum(samples))
        return {
            "estimated_accuracy": None if accuracy is None else accuracy[0],
            "estimated_accuracy_stderr": None if accuracy is None else accuracy[1],
            "estimated_gain": gain[0],
            "estimated_gain_stderr": gain[1],
            "refined_share": refined_share,
            **({} if member is None else {"predicting_model": float(member)}),
        }


def _ratio(pairs: Sequence[tuple[float, int]]) -> tuple[float, float] | None:
    """The ratio of two sums, and its standard error with clients as the units: their samples are not independent."""
    caps = weight_caps([samples for _, samples in pairs])
    capped = [(cap * number, cap * samples) for cap, (number, samples) in zip(caps, pairs, strict=True)]
    total = sum(samples for _, samples in capped)
    if total <= 0:
        return None
    ratio = sum(number for number, _ in capped) / total
    if len(capped) < 2:
        return ratio, 1.0
    squares = sum((number - ratio * samples) ** 2 for number, samples in capped)
    return ratio, math.sqrt(squares * len(capped) / (len(capped) - 1)) / total


def _with_least_error(accuracy: tuple[float, float] | None, samples: int) -> tuple[float, float] | None:
    """The accuracy and its standard error, which is at least that of `samples` independent samples.

    The latter counts one right and one wrong sample more, so that it is above 0 where all are right.
    """
    if accuracy is None:
        return None
    share = (accuracy[0] * samples + 1) / (samples + 2)
    return accuracy[0], max(accuracy[1], math.sqrt(share * (1 - share) / (samples + 2)))


def _with_prefix(payload: Weights, prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in payload.items() if name.startswith(prefix)}
