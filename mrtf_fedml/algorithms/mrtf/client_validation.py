"""Client validation: clients have labels, and count how many of their samples the server's models classify correctly.

`ClientValidation` wraps the base: each selected client evaluates two candidates, the base's last model and the refined
one, before it trains. `ValidationCounts` is what it reports, `ValidationSummary` what the server concludes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...models.state_dict import load_weights
from ...rng import torch_generator
from ..base import Algorithm
from ..server_context import ServerContext
from ..types import ClientTask, ClientUpdate, Memory, Metric, Payload, RoundReport, ServerState, Weights
from ..wrapper import AlgorithmWrapper

#: In the server's memory and in payloads, what belongs to the validation has this prefix; the rest is the base's.
PREFIX = "validation/"
_BASE, _REFINED = PREFIX + "base/", PREFIX + "refined/"
_FREQUENCIES = PREFIX + "class_frequencies"
_HISTORY = PREFIX + "history"
#: The name of a client's counts in its payload.
COUNTS = PREFIX + "counts"

#: A client with fewer samples uses all of them for training.
_LEAST_SAMPLES = 4
#: In the weights of a client's samples, a class counts as if the client had at least this fraction of an equal share: a
#: single sample must not represent its class.
_LEAST_CLASS_SHARE = 0.5
#: No client evaluates more samples; counts up to here are exact.
_MOST_SAMPLES = 2.0**53
#: What rounding may add to a weighted sum.
_ROUNDING = 1e-6

#: Rounds whose counts are kept, and the factor by which each older round counts less. Which of two models is better
#: changes slowly and needs many counts; how good they are changes fast while they learn.
_ROUNDS, _DECAY, _FAST_DECAY = 5, 0.6, 0.3
#: Standard errors by which the base's model must be better to predict in place of the refined one. With one, chance
#: selected it too often: clients are optimistic about the model that was trained on their samples (docs/choices.md).
_BEYOND_CHANCE = 2.0
#: The refined model's share where clients find both models equal: a mix of two different models makes fewer errors.
#: Where it may be better by the second number, within the standard error, the refined one predicts alone.
_EQUAL_SHARE, _CLEARLY_BETTER = 0.5, 0.04
#: The gain in accuracy from which on the refined model is broadcast in full.
_MUCH_BETTER = 0.2
#: Where this much less of the clients' samples is predicted as the server's are, the server's classes are different.
_DIFFERENT_CLASSES = 0.25
#: So near to one client there is no spread.
_ONE_CLIENT = 1e-9


#: What `ValidationSummary.metrics` reports.
VALIDATION_METRICS = (
    Metric("estimated_accuracy", "estimated accuracy", in_progress=True),
    Metric("estimated_accuracy_stderr", "standard error of the estimated accuracy"),
    Metric("estimated_accuracy_unweighted", "estimated accuracy on the clients' own classes"),
    Metric("estimated_accuracy_unweighted_stderr", "standard error of the accuracy on the clients' own classes"),
    Metric("estimated_optimism", "optimistic bias of the estimated accuracy"),
    Metric("estimated_gain", "gain by refining, as the clients estimate it"),
    Metric("estimated_gain_stderr", "standard error of the estimated gain"),
    Metric("refined_share", "share of the refined model in the model that predicts"),
)


@dataclass(frozen=True)
class ValidationCounts:
    """What a client reports of the two candidates.

    It travels as a tensor of seven doubles, in the order of the attributes.

    Attributes:
        base_correct: samples that the base's model classifies correctly.
        refined_correct: samples that the refined model classifies correctly.
        samples: samples that were classified; with T positions per sample, each counts.
        weighted_base_correct: as `base_correct`, each sample weighted by its class (`class_weights`).
        weighted_refined_correct: as `refined_correct`, weighted.
        weighted_samples: as `samples`, weighted.
        similar_samples: sum_c s_c m_c / sum_c s_c^2, s_c the fraction of the server's samples predicted as class c,
            and m_c how often the refined model predicts it here: `samples` if it predicts the same classes here.
    """

    base_correct: float
    refined_correct: float
    samples: float
    weighted_base_correct: float
    weighted_refined_correct: float
    weighted_samples: float
    similar_samples: float

    def to_tensor(self) -> Tensor:
        """The seven numbers, [7]."""
        return torch.tensor(astuple(self), dtype=torch.float64)

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> ValidationCounts | None:
        """The counts that a tensor of seven numbers holds, whatever its shape; None where it holds others.

        >>> ValidationCounts.from_tensor(torch.tensor([1.0, 2.0, 2.0, 1.0, 2.0, 2.0, 2.0])).refined_correct
        2.0
        """
        numbers = tensor.double().flatten().tolist()
        return cls(*numbers) if len(numbers) == len(fields(cls)) else None

    def is_valid(self) -> bool:
        """Whether these can be counts: no more correct than samples, and no more weight than samples."""
        plain = _is_count(self.base_correct, self.refined_correct, self.samples, _MOST_SAMPLES)
        weighted = _is_count(
            self.weighted_base_correct, self.weighted_refined_correct, self.weighted_samples, self.samples
        )
        return plain and weighted and 0 <= self.similar_samples <= _MOST_SAMPLES

    def scaled(self, factor: float) -> ValidationCounts:
        """All numbers multiplied by a factor."""
        return ValidationCounts(*(number * factor for number in astuple(self)))

    def correct(self, refined_share: float) -> float:
        """Correct samples of a mix of the two models, as far as the two can tell; a mix rather has more."""
        return (1 - refined_share) * self.base_correct + refined_share * self.refined_correct

    def weighted_correct(self, refined_share: float) -> float:
        """The same, weighted."""
        return (1 - refined_share) * self.weighted_base_correct + refined_share * self.weighted_refined_correct


class ClientValidation(AlgorithmWrapper):
    """The base, with clients that evaluate the server's last candidates before they train.

    `propose` stores the models that the next clients evaluate; `ValidationSummary.of` reads what they found.
    """

    name: ClassVar[str] = "ClientValidation"
    prefix: ClassVar[str] = PREFIX

    def __init__(self, base: Algorithm, fraction: float) -> None:
        """Wrap the base; a `fraction` of each client's samples is held out from training."""
        super().__init__(base.settings)
        self.inner = base
        self.fraction = fraction

    def has_own_client_rule(self) -> bool:
        """Its clients do more than train."""
        return True

    def propose(self, state: ServerState, base: Weights, refined: Weights, class_frequencies: Tensor) -> ServerState:
        """The state with the candidates that the next clients evaluate.

        Args:
            state: after the round; what it broadcasts or predicts with is not stored twice.
            base: the base's model.
            refined: the refined model.
            class_frequencies: how often each class is predicted on the server's samples, [C].
        """
        candidates: dict[str, Tensor] = {_FREQUENCIES: class_frequencies.cpu()}
        for prefix, weights, stored in ((_BASE, base, state.weights), (_REFINED, refined, state.prediction_weights)):
            if weights is not stored:
                candidates |= {prefix + name: value for name, value in weights.items()}
        return replace(state, memory={**state.memory, **candidates})

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """The base's, and the candidates that a client does not receive anyway; none before the first round's end."""
        payload = super().client_payload(state, client)
        if state.round == 0:
            return payload
        sent = {name: value for name, value in state.memory.items() if name.startswith((_BASE, _REFINED, _FREQUENCIES))}
        if not any(name.startswith(_REFINED) for name in sent):
            sent |= {_REFINED + name: value for name, value in state.prediction_weights.items()}
        return {**payload, **sent}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """Evaluate the candidates on the validation split, then train by the base's rule on the rest."""
        training, validation = train_validation_split(task.data, self.fraction, self.seed, task.client)
        counts: dict[str, Tensor] = {}
        refined = _with_prefix(task.payload, _REFINED)
        if refined and _FREQUENCIES in task.payload:
            candidates = [_with_prefix(task.payload, _BASE) or task.weights, refined]
            counts[COUNTS] = count_correct(model, candidates, validation, task.payload[_FREQUENCIES]).to_tensor()
        update = self.inner.train_client(model, replace(task, data=training, payload=self.inner_entries(task.payload)))
        return replace(update, payload={**update.payload, **counts})

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """Counts must be possible; the rest is checked by the base."""
        if COUNTS in update.payload:
            counts = ValidationCounts.from_tensor(update.payload[COUNTS])
            if counts is None or not counts.is_valid():
                return "its validation counts are not counts of correct samples"
        return super().validate_update(state, update)

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """The base's; the memory keeps the counts of the last rounds."""
        history = _with_new_round(state.memory.get(_HISTORY, []), updates)
        inner_updates = [self.inner_update(update) for update in updates]
        after, report = self.inner.server_update(self.inner_state(state), inner_updates, aggregated, server)
        return replace(after, memory={**after.memory, _HISTORY: history}), report


def train_validation_split(data: Any, fraction: float, seed: int, client: int) -> tuple[Iterable[Any], Iterable[Any]]:
    """A client's training samples and its validation samples: the same ones in every round and every process.

    With a fraction of 0 all samples are in both, and the validation is optimistic. So it is with a loader of the user's
    own, which cannot be split. A client with very few samples validates with none.
    """
    if fraction == 0.0 or not hasattr(data, "part"):
        return data, data
    held_out = 0 if data.samples < _LEAST_SAMPLES else max(1, round(fraction * data.samples))
    order = torch.randperm(data.samples, generator=torch_generator(seed, "client validation", client))
    # In their own order, so that batches are drawn from the training part as from any shard.
    return data.part(order[held_out:].sort().values), data.part(order[:held_out].sort().values)


@torch.inference_mode()
def count_correct(
    model: nn.Module, candidates: Sequence[Weights], data: Iterable[Any], class_frequencies: Tensor
) -> ValidationCounts:
    """Evaluate the base's and the refined model on a client's samples.

    Args:
        model: reusable; its weights are overwritten.
        candidates: the base's weights, then the refined ones.
        data: batches of samples and labels.
        class_frequencies: how often each class is predicted on the server's samples, [C].
    """
    classes = len(class_frequencies)
    correct = torch.zeros(2, classes, dtype=torch.float64)
    correct_total = torch.zeros(2, dtype=torch.float64)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    for index, weights in enumerate(candidates):
        load_weights(model, weights)
        # Of the last candidate, the refined model; what is counted of the labels is the same for both.
        samples = 0.0
        held, predicted = (torch.zeros(classes, dtype=torch.float64) for _ in range(2))
        for inputs, labels in data:
            labels, guessed = labels.cpu(), model(inputs.to(device)).argmax(dim=1).cpu()
            right = guessed == labels
            correct_total[index] += right.sum()
            samples += labels.numel()
            correct[index] += _class_counts(labels[right], classes)
            held += _class_counts(labels, classes)
            predicted += _class_counts(guessed, classes)
    model.train(was_training)
    frequencies = class_frequencies.double()
    weighted = (torch.cat([correct, held[None]]) * class_weights(held, frequencies)).sum(dim=1)
    similar = (predicted * frequencies).sum() / (frequencies * frequencies).sum()
    base, refined = correct_total.tolist()
    weighted_base, weighted_refined, weighted_samples = weighted.tolist()
    return ValidationCounts(base, refined, samples, weighted_base, weighted_refined, weighted_samples, float(similar))


def class_weights(held: Tensor, frequencies: Tensor) -> Tensor:
    """w_c = s_c n / max(n_c, n / 2C): the weight of a client's sample of class c for a server with these classes.

    A client with the server's class frequencies weights all samples by 1. One that has none of the server's classes has
    almost no weight: the sum over its samples is n times the fraction of the server's classes that it has.

    Args:
        held: n_c, the client's samples of each class, [C].
        frequencies: s, the server's predicted class frequencies, [C].

    >>> class_weights(torch.tensor([30, 10, 0, 0]), torch.tensor([0.25, 0.25, 0.5, 0.0])).tolist()
    [0.3333333333333333, 1.0, 4.0, 0.0]
    """
    counts = held.double()
    least = _LEAST_CLASS_SHARE / len(counts) * counts.sum()
    return frequencies.double() * counts.sum() / counts.clamp_min(max(1.0, float(least)))


@dataclass(frozen=True)
class ValidationSummary:
    """What the clients of the last rounds found, the newest round last."""

    rounds: list[list[ValidationCounts]]

    @classmethod
    def of(cls, memory: Memory) -> ValidationSummary:
        """From the server's memory."""
        return cls([[ValidationCounts(**counts) for counts in clients] for clients in memory.get(_HISTORY, [])])

    def prediction_share(self) -> float:
        """The refined model's share in the model that predicts: 0 where the base's is better beyond chance, else 0.5-1.

        A half where the clients are sure that both are equal, and more the better the refined one may be.
        """
        gain = self.gain()
        if gain is None:
            return 1.0
        if gain[0] < -_BEYOND_CHANCE * gain[1]:
            return 0.0
        return min(1.0, max(_EQUAL_SHARE, _EQUAL_SHARE + (1 - _EQUAL_SHARE) * sum(gain) / _CLEARLY_BETTER))

    def broadcast_share(self, least: float = 0.0) -> float:
        """How much better than by `least` the clients find the refined model, beyond chance: 1 from a fifth on."""
        gain = self.gain()
        return 0.0 if gain is None else min(1.0, max(0.0, gain[0] - gain[1] - least) / (_MUCH_BETTER - least))

    def gain(self) -> tuple[float, float] | None:
        """The refined model's accuracy minus that of the base's, and its standard error; None where nobody counted."""
        return _ratio([(each.refined_correct - each.base_correct, each.samples) for each in self._decayed(_DECAY)])

    def metrics(self, refined_share: float, is_held_out: bool) -> dict[str, float | None]:
        """The estimated accuracy of the model that predicts, the gain by refining, and their standard errors.

        Where the server's classes are different from the clients', the estimate moves to the weighted counts;
        `estimated_accuracy_unweighted` is then the accuracy on the clients' own classes.

        Args:
            refined_share: of the refined model in the model that predicts.
            is_held_out: whether clients validate on samples that they do not train on.
        """
        gain = self.gain() or (None, None)
        comparison = {
            "estimated_gain": gain[0],
            "estimated_gain_stderr": gain[1],
            "refined_share": refined_share,
        }
        counts = self._decayed(_FAST_DECAY)
        plain = _ratio([(each.correct(refined_share), each.samples) for each in counts])
        if plain is None:
            return {"estimated_accuracy": None, "estimated_accuracy_stderr": None, **comparison}
        weighted = _weighted_ratio([(each.weighted_correct(refined_share), each.weighted_samples) for each in counts])
        accuracy, stderr = _move_towards(plain, weighted, self._class_difference())
        return {
            "estimated_accuracy": accuracy,
            "estimated_accuracy_stderr": stderr,
            "estimated_accuracy_unweighted": plain[0],
            "estimated_accuracy_unweighted_stderr": plain[1],
            **({"estimated_optimism": 0.0} if is_held_out else {}),
            **comparison,
        }

    def _class_difference(self) -> float:
        """How far the server's classes are different from the clients', in [0, 1], by what a model predicts for both.

        A model that misses a class, or always predicts one, does so on both sides: what it predicts alike on both says
        nothing of the server's classes.
        """
        counts = self._decayed(_DECAY)
        similar = sum(each.similar_samples for each in counts) / sum(each.samples for each in counts)
        return min(1.0, max(0.0, 1.0 - similar) / _DIFFERENT_CLASSES)

    def _decayed(self, decay: float) -> list[ValidationCounts]:
        """All clients' counts, older rounds counting less."""
        newest = len(self.rounds) - 1
        return [
            counts.scaled(decay ** (newest - index)) for index, clients in enumerate(self.rounds) for counts in clients
        ]


_Pairs = list[tuple[float, float]]


def _ratio(pairs: _Pairs) -> tuple[float, float] | None:
    """The ratio of two sums, and its standard error with clients as the units: their samples are not independent."""
    total = sum(samples for _, samples in pairs)
    if total <= 0:
        return None
    ratio = sum(correct for correct, _ in pairs) / total
    return ratio, _spread(pairs, ratio, len(pairs)) / total if len(pairs) > 1 else 1.0


def _weighted_ratio(pairs: _Pairs) -> tuple[float, float] | None:
    """The same for weighted counts; None where nobody has weight.

    Clients without the server's classes have almost no weight, and the others are few: (sum w)^2 / sum w^2 of them.
    """
    total = sum(weight for _, weight in pairs)
    if total <= 0:
        return None
    ratio = sum(correct for correct, _ in pairs) / total
    clients = total**2 / sum(weight**2 for _, weight in pairs)
    error = _spread(pairs, ratio, clients) / total if clients > 1 + _ONE_CLIENT else 1.0
    # Where all weights together are less than one sample's, the spread of the few says nothing.
    return ratio, max(error, 1.0 / (1.0 + total))


def _move_towards(
    plain: tuple[float, float], weighted: tuple[float, float] | None, share: float
) -> tuple[float, float]:
    """The plain estimate, moved by a share towards the weighted one, and its error.

    The server's classes are known by predictions alone: about 1 - plain of these are wrong, and then nothing supports
    the move.
    """
    ratio, error = weighted or (plain[0], 1.0)
    move = share * (ratio - plain[0])
    by_chance = (1.0 - share) * plain[1] + share * error
    return plain[0] + move, min(1.0, math.hypot(by_chance, (1.0 - plain[0]) * move))


def _spread(pairs: _Pairs, ratio: float, clients: float) -> float:
    """How far the clients' counts are from the ratio, together, as so many clients would be by chance."""
    squares = sum((correct - ratio * weight) ** 2 for correct, weight in pairs)
    return math.sqrt(squares * clients / (clients - 1))


def _is_count(first: float, second: float, samples: float, most: float) -> bool:
    least, largest = min(first, second, samples), max(first, second)
    return least >= 0 and largest <= samples * (1 + _ROUNDING) and samples <= most * (1 + _ROUNDING)


def _class_counts(labels: Tensor, classes: int) -> Tensor:
    """How many there are of each class, [C]; a label that is none of the classes is not counted."""
    known = labels.long().flatten()
    return torch.bincount(known[(known >= 0) & (known < classes)], minlength=classes)


def _with_new_round(history: list[list[dict[str, float]]], updates: Iterable[ClientUpdate]) -> list[Any]:
    """The history with the counts of this round's clients that classified at least one sample."""
    received = [ValidationCounts.from_tensor(each.payload[COUNTS]) for each in updates if COUNTS in each.payload]
    newest = [asdict(counts) for counts in received if counts is not None and counts.samples > 0]
    return [*history, newest][-_ROUNDS:] if newest else history


def _with_prefix(payload: Weights, prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in payload.items() if name.startswith(prefix)}
