"""FedRidge: ridge regression on the one-hot labels, in closed form, from sums that each client sends once.

Hoerl, Kennard: "Ridge Regression: Biased Estimation for Nonorthogonal Problems", Technometrics 1970. A sum over all
samples does not depend on who holds which sample: the result is that of the pooled samples, whatever the split.

Symbols: h(x) the input of the model's last linear layer, with D numbers; z = (h(x), 1); C classes; y the one-hot label;
G = sum z z^T and B = sum z y^T over a client's samples, alpha the ridge strength.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from pydantic.dataclasses import dataclass as validated_dataclass
from torch import Tensor, nn

from ..config import RunSettings
from ..config.types import VALIDATED, PositiveFloat
from ..errors import UserError
from ..models.modes import eval_mode
from ..models.state_dict import load_weights
from .base import Algorithm
from .mrtf.client_validation import train_validation_split
from .registry import algorithm_by_name, register_algorithm
from .server_context import ServerContext
from .types import ClientTask, ClientUpdate, Memory, Metric, Payload, RoundReport, ServerState, Weights

_log = logging.getLogger(__name__)

#: Candidates for alpha, relative to the mean variance of a feature times the number of samples.
RELATIVE_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
#: The relative strength where the clients do not choose: near the best on digits, tables and image features.
_DEFAULT_STRENGTH = 1e-1
#: The fraction of a client's samples on which it counts the candidates' correct predictions.
_VALIDATION_FRACTION = 0.1
#: The logits are scaled to this standard deviation, tau of Eq. 6: the softmax of plain ridge outputs is almost uniform.
_LOGIT_SCALE = 4.0
#: With more features than this, G has more than 800 MB, and the server needs several times as much.
_MAX_FEATURES = 10_000
#: Rows of h(x) that are multiplied at once, as doubles.
_ROWS = 1024
#: What rounding may do to sums, relative to the largest.
_ROUNDING = 1e-6

#: Names in payloads and in the server's memory.
_PART, _CANDIDATES, _CORRECT = "part", "candidates", "correct"
_GRAM, _CLASS_SUMS, _CLIENTS, _BODY = "gram", "class_sums", "clients", "body/"

#: Which samples a client is asked to sum up. Without a request, as under FedML's own server, it sums up all.
_ALL, _TRAINING, _HELD_OUT, _NONE = range(4)


@validated_dataclass(frozen=True, config=VALIDATED)
class FedRidgeSettings:
    """FedRidge's keys in `train_args`."""

    #: alpha in ||Y - XW - b||^2 + alpha ||W||^2, as scikit-learn's `Ridge`. Not given: the clients choose
    #: among six, by their correct predictions on a tenth of their samples, whose sums are sent separately. The
    #: sum of a class of which a client sends a single sample is this sample's features.
    ridge_strength: PositiveFloat | None = None
    #: Clients whose sums are subtracted again, or never added. Such a client sends its sums once more.
    ridge_removed_clients: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Sums:
    """The sums of some samples, doubles.

    Attributes:
        gram: G, [D + 1, D + 1]; symmetric.
        class_sums: B, [D + 1, C]; its last row is the number of samples per class.
    """

    gram: Tensor
    class_sums: Tensor

    @classmethod
    def of(cls, batches: Iterable[tuple[Tensor, Tensor]], features: int, classes: int) -> Sums:
        """The sums of batches of h(x), [N, D], and labels, [N].

        >>> Sums.of([(torch.tensor([[2.0], [4.0]]), torch.tensor([0, 1]))], features=1, classes=2).gram
        tensor([[20.,  6.],
                [ 6.,  2.]], dtype=torch.float64)
        """
        gram = torch.zeros(features + 1, features + 1, dtype=torch.float64)
        class_sums = torch.zeros(features + 1, classes, dtype=torch.float64)
        # Few large products instead of one per batch: each adds to all of G.
        for rows, labels in _collect_rows(batches):
            extended = torch.cat([rows.double(), torch.ones(len(rows), 1, dtype=torch.float64)], dim=1)
            gram.addmm_(extended.T, extended)
            class_sums.addmm_(extended.T, nn.functional.one_hot(labels, classes).double())
        return cls(gram, class_sums)

    @classmethod
    def from_tensors(cls, tensors: Weights) -> Sums:
        """The sums that `to_tensors` made."""
        class_sums, packed = tensors[_CLASS_SUMS].double(), tensors[_GRAM].double()
        size = len(class_sums)
        gram = torch.empty(size, size, dtype=torch.float64)
        start = 0
        for row in range(size):
            values = packed[start : start + size - row]
            gram[row, row:] = values
            gram[row:, row] = values
            start += size - row
        return cls(gram, class_sums)

    def to_tensors(self) -> dict[str, Tensor]:
        """What is sent and saved: B, and the upper triangle of G, row by row."""
        rows = [values[row:] for row, values in enumerate(self.gram)]
        return {_GRAM: torch.cat(rows), _CLASS_SUMS: self.class_sums}

    def add(self, other: Sums, sign: float = 1.0) -> Sums:
        """The sums of both; with the sign -1, of the samples that are not in the other."""
        return Sums(self.gram + sign * other.gram, self.class_sums + sign * other.class_sums)

    @property
    def class_counts(self) -> Tensor:
        """Samples per class, [C]."""
        return self.class_sums[-1]

    def centred_sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """The mean m of h, and with it sum (h - m)(h - m)^T and sum (h - m) y^T."""
        samples = self.gram[-1, -1]
        mean = self.gram[:-1, -1] / samples
        covariance = self.gram[:-1, :-1] - samples * torch.outer(mean, mean)
        return mean, covariance, self.class_sums[:-1] - torch.outer(mean, self.class_counts)

    def strength(self, relative: float) -> float:
        """The alpha that is so many times the mean diagonal entry of the centred G."""
        _, covariance, _ = self.centred_sums()
        mean = float(covariance.diagonal().mean())
        return relative * mean if mean > 0 else relative

    def solve(self, strengths: Sequence[float]) -> Tensor:
        """W and b that minimise ||Y - HW - b||^2 + alpha ||W||^2 for each alpha, [len(strengths), D + 1, C], doubles.

        The last row is b, which is not penalised. W = (sum (h - m)(h - m)^T + alpha I)^-1 sum (h - m) y^T, m the mean
        of h, by Cholesky's decomposition. Where noise makes the matrix indefinite, alpha is doubled until it is not.
        """
        mean, covariance, cross = self.centred_sums()
        solutions = []
        for strength in strengths:
            failed, alpha = True, strength
            while failed:
                shifted = covariance.clone()
                shifted.diagonal().add_(alpha)
                factor, info = torch.linalg.cholesky_ex(shifted)
                failed, alpha = bool(info), 2 * alpha
            weights = torch.cholesky_solve(cross, factor)
            bias = self.class_counts / self.gram[-1, -1] - mean @ weights
            solutions.append(torch.cat([weights, bias[None]]))
        return torch.stack(solutions)

    def logit_scale(self, solution: Tensor) -> float:
        """The factor that gives the logits of these samples the standard deviation tau, over samples and classes."""
        classes, samples = solution.shape[1], float(self.gram[-1, -1])
        squares = float((solution * (self.gram @ solution)).sum()) / (samples * classes)
        mean = float((self.gram[-1] @ solution).sum()) / (samples * classes)
        return _LOGIT_SCALE / math.sqrt(max(squares - mean * mean, 1e-12))


@register_algorithm
class FedRidge(Algorithm):
    """The model's last linear layer is the ridge solution on all clients' samples; the layers before it do not change.

    A client sends G and B, once: first those of nine tenths of its samples; when it is selected again, it counts how
    many of the other samples each candidate for alpha classifies correctly, and sends their sums too. With a given
    `ridge_strength`, or under `dp_args`, it sends all at once. The server selects clients that have something to send,
    and the run ends when none has. Late clients are added; `ridge_removed_clients` are subtracted.

    Under `dp_args` a client's sums as a whole are clipped to the norm `clip`, and get noise `sigma`.
    """

    name: ClassVar[str] = "FedRidge"
    Settings = FedRidgeSettings
    section: ClassVar[str] = "train_args"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("ridge_strength", "ridge strength (alpha)"),
        Metric("clients_added", "clients whose sums are in the model"),
    )
    hparams: FedRidgeSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        train, privacy = settings.train, settings.privacy
        #: Whether its clients' own solutions teach an algorithm around it, such as MrTF.
        self.is_base = not issubclass(algorithm_by_name(train.federated_optimizer), FedRidge)
        if settings.clients_only_train:
            raise UserError(
                "FedRidge's clients send sums of features, which devices and trainers of your own do not compute; "
                "choose another federated_optimizer"
            )
        if privacy.enable_dp or (privacy.is_active and self.is_base):
            raise UserError(
                "FedRidge adds noise to the clients' sums, by clip and sigma (dp_args), and not to local models; "
                "remove enable_dp, and use it as federated_optimizer and not as mrtf_args.base"
            )
        if settings.model.initial_weights is not None and settings.model.model == "linear":
            raise UserError(
                "model_args.initial_weights would have no effect: FedRidge computes a linear model from sums; leave it "
                "out, or choose another algorithm (in MrTF mrtf_args.base: FedAvg)"
            )
        self._has_warned = False
        visits = math.ceil(train.client_num_in_total / train.client_num_per_round)
        self.validates = self.hparams.ridge_strength is None and train.comm_round > 1 and not privacy.is_active
        if not self.is_base and train.comm_round < visits * (2 if self.validates else 1):
            _log.warning(
                "FedRidge needs %d rounds of %d clients to hear all %d%s, but comm_round is %d; raise comm_round or "
                "client_num_per_round (train_args)",
                visits * (2 if self.validates else 1),
                train.client_num_per_round,
                train.client_num_in_total,
                " twice" if self.validates else "",
                train.comm_round,
            )

    @property
    def aggregates_payload(self) -> bool:
        """It sums up what the clients send besides the weights."""
        return True

    def init_state(self, weights: Weights) -> ServerState:
        """As a base, it keeps the layers before the last: others are broadcast, whose sums could not be added."""
        head = _head_keys(head_name(weights))
        features = weights[head[0]].shape[1]
        if features > _MAX_FEATURES:
            raise UserError(
                f"FedRidge solves for {features} features per sample, and its matrices would have "
                f"{8e-9 * features**2:.1f} GB each; use an encoder or a model with at most {_MAX_FEATURES}, or another "
                "algorithm (in MrTF mrtf_args.base: FedAvg)"
            )
        body = {_BODY + key: value for key, value in weights.items() if self.is_base and key not in head}
        return replace(super().init_state(weights), memory=body)

    def eligible_clients(self, state: ServerState, available: Sequence[int]) -> Sequence[int]:
        """Those that have something to send, new ones first; others only to reach `min_clients`; all if none has."""
        parts = {client: self._wanted_part(state.memory, client) for client in available}
        waiting = [client for client in available if parts[client] in (_ALL, _TRAINING)]
        waiting = waiting or [client for client in available if parts[client] == _HELD_OUT]
        others = [client for client in available if client not in waiting]
        return waiting + others[: max(0, self.settings.train.min_clients - len(waiting))] if waiting else available

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """The part of the samples that is wanted, the layers before the last, and the candidates for the rest."""
        part = self._wanted_part(state.memory, client)
        body = {name: value for name, value in state.memory.items() if name.startswith(_BODY)}
        candidates = {_CANDIDATES: state.memory[_CANDIDATES]} if part == _HELD_OUT else {}
        return {**body, **candidates, _PART: float(part)}

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """The sums of the samples that are wanted, and the candidates' correct predictions on them."""
        body = _body(task.payload)
        load_weights(model, {**task.weights, **body})
        part = int(task.payload.get(_PART, _ALL))
        training: Iterable[Any] = task.data
        held_out: Iterable[Any] = ()
        if part in (_TRAINING, _HELD_OUT) and hasattr(task.data, "part"):
            training, held_out = train_validation_split(task.data, _VALIDATION_FRACTION, self.seed, task.client)
        name = head_name(task.weights)
        classes, features = task.weights[_head_keys(name)[0]].shape
        payload: dict[str, Tensor] = {}
        if part != _NONE:
            wanted = held_out if part == _HELD_OUT else training
            batches: Iterable[tuple[Tensor, Tensor]] = head_inputs(model, name, wanted)
            if _CANDIDATES in task.payload:
                batches = list(batches)
                payload[_CORRECT] = count_correct(task.payload[_CANDIDATES], batches)
            sums = Sums.of(batches, features, classes)
            self._warn_of_single_samples(sums, task.client)
            payload |= sums.to_tensors()
        if not self.is_base:
            return ClientUpdate(task.client, task.samples, task.weights, None, payload)
        own = Sums.of(head_inputs(model, name, training), features, classes)
        weights = {**task.weights, **body, **_head_weights(own, own.strength(_DEFAULT_STRENGTH), task.weights)}
        load_weights(model, weights)
        return ClientUpdate(task.client, task.samples, weights, _mean_cross_entropy(model, training), payload)

    def _warn_of_single_samples(self, sums: Sums, client: int) -> None:
        single = (sums.class_counts == 1).nonzero().flatten().tolist()
        if not single or self._has_warned or self.settings.privacy.is_active:
            return
        # Once per process: a simulation would repeat it for every client.
        self._has_warned = True
        _log.warning(
            "client %d sends FedRidge's sums with a single sample of class %s: they are this sample's features; if "
            "they must not leave a client, set dp_args (clip, sigma) or choose another algorithm (in MrTF "
            "mrtf_args.base: FedAvg)",
            client,
            ", ".join(map(str, single[:5])),
        )

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """The sums must be sums of no more samples than the client has."""
        part = self._wanted_part(state.memory, update.client)
        if part == _NONE:
            return None
        classes, features = state.weights[_head_keys(head_name(state.weights))[0]].shape
        shapes = {_GRAM: ((features + 1) * (features + 2) // 2,), _CLASS_SUMS: (features + 1, classes)}
        for name, shape in shapes.items():
            if name not in update.payload or update.payload[name].shape != shape:
                return f"its payload {name!r} does not have the shape {shape}"
        if self.settings.privacy.is_active:
            return None
        sums = Sums.from_tensors(update.payload)
        removed = state.memory.get(_CLIENTS, {}).get(str(update.client)) if self._is_removed(update.client) else None
        if removed is not None and removed["counts"] != sums.class_counts.tolist():
            return "it sent sums of other samples than those that are to be removed"
        if part == _HELD_OUT and not _are_counts(update.payload.get(_CORRECT), float(sums.gram[-1, -1])):
            return "its counts of correct predictions are no counts"
        return find_impossible_sum(sums, update.samples)

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """Add the new sums in the order of the clients, and solve."""
        memory = dict(state.memory)
        clients: dict[str, Any] = dict(memory.get(_CLIENTS, {}))
        sums = Sums.from_tensors(memory) if _GRAM in memory else None
        for update in sorted(updates, key=lambda update: update.client):
            part, key = self._wanted_part(state.memory, update.client), str(update.client)
            if part == _NONE:
                continue
            own = Sums.from_tensors(update.payload)
            if self._is_removed(update.client):
                assert sums is not None
                sums = sums.add(own, -1.0)
                del clients[key]
                continue
            sums = own if sums is None else sums.add(own)
            before = clients[key]["counts"] if key in clients else [0.0] * len(own.class_counts)
            counts = [old + new for old, new in zip(before, own.class_counts.tolist(), strict=True)]
            clients[key] = {"complete": part != _TRAINING, "counts": counts}
            if part == _HELD_OUT:
                clients[key][_CORRECT] = update.payload[_CORRECT].tolist()
        if sums is None:
            return replace(state, round=state.round + 1), RoundReport()
        memory |= {**sums.to_tensors(), _CLIENTS: clients}
        memory.pop(_CANDIDATES, None)
        if float(sums.gram[-1, -1]) <= 0:
            # Nobody is left, or noise exceeds the few sums so far, which are kept: asking again would cost privacy.
            return replace(state, round=state.round + 1, memory=memory), RoundReport()
        strength = self._strength(sums, clients)
        if not all(client["complete"] for client in clients.values()):
            memory[_CANDIDATES] = sums.solve([sums.strength(each) for each in RELATIVE_STRENGTHS]).float()
        weights = {**state.weights, **_body(memory), **_head_weights(sums, strength, state.weights)}
        report = RoundReport(
            {"ridge_strength": strength, "clients_added": len(clients)},
            stop_reason=self._stop_reason(memory, has_changed=clients != state.memory.get(_CLIENTS)),
        )
        after = replace(state, round=state.round + 1, weights=weights, prediction_weights=weights, memory=memory)
        return after, report

    def max_payload_bytes(self, weights: Weights) -> int:
        """Of G and B, or of the candidates and the layers before the last."""
        classes, features = weights[_head_keys(head_name(weights))[0]].shape
        sums = 8 * (features + 1) * ((features + 2) // 2 + 1 + classes)
        return max(sums, 4 * (features + 1) * classes * len(RELATIVE_STRENGTHS))

    def _is_removed(self, client: int) -> bool:
        return client in self.hparams.ridge_removed_clients

    def _wanted_part(self, memory: Memory, client: int) -> int:
        """The samples whose sums this client is to send; for a client that leaves, those that it has sent."""
        added = memory.get(_CLIENTS, {}).get(str(client))
        if self._is_removed(client):
            return _NONE if added is None else _ALL if added["complete"] else _TRAINING
        if added is None:
            return _TRAINING if self.validates else _ALL
        return _NONE if added["complete"] else _HELD_OUT

    def _strength(self, sums: Sums, clients: Mapping[str, Any]) -> float:
        """alpha: as given, as the clients chose, or the default; with noise at least the noise's largest eigenvalue."""
        privacy = self.settings.privacy
        counts = [client[_CORRECT] for client in clients.values() if _CORRECT in client]
        # The larger one of two with equal counts.
        best = max(zip(map(sum, zip(*counts, strict=True)), RELATIVE_STRENGTHS, strict=True))[1] if counts else None
        strength = self.hparams.ridge_strength or sums.strength(best or _DEFAULT_STRENGTH)
        if privacy.is_active:
            # The largest eigenvalue of a symmetric D x D matrix of noise with standard deviation s is near 2 s sqrt(D).
            strength = max(strength, 2 * privacy.sigma * math.sqrt(len(clients) * len(sums.gram)))
        return strength

    def _stop_reason(self, memory: Memory, has_changed: bool) -> str | None:
        everyone = range(self.settings.train.client_num_in_total)
        waiting = [client for client in everyone if self._wanted_part(memory, client) != _NONE]
        if not waiting:
            return f"FedRidge has the sums of all {len(memory[_CLIENTS])} clients; more rounds would change nothing"
        if has_changed:
            return None
        return (
            f"no client has sums to send but clients {waiting}, which did not take part; resume the run when they can"
        )


def head_name(weights: Weights) -> str:
    """The name of the last linear layer: the last entries `<name>.weight`, [C, D], and `<name>.bias`, [C].

    >>> head_name({"body.weight": torch.zeros(4, 3), "head.weight": torch.zeros(2, 4), "head.bias": torch.zeros(2)})
    'head'
    """
    for key in reversed(list(weights)):
        name = key.removesuffix(".bias")
        weight = weights.get(f"{name}.weight")
        if name != key and weight is not None and weight.dim() == 2 and weights[key].shape == weight.shape[:1]:
            return name
    raise UserError("FedRidge solves a model's last linear layer, with bias, and this one has none; use model: linear")


@torch.no_grad()
def head_inputs(model: nn.Module, name: str, data: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of h(x), [N, D], the input of the layer of this name, and labels [N], on the CPU."""
    head, calls = model.get_submodule(name), []
    handle = head.register_forward_hook(lambda module, args, output: calls.append((args[0], output)))
    device = next(model.parameters()).device
    try:
        for inputs, labels in data:
            calls.clear()
            with eval_mode(model):
                logits = model(inputs.to(device))
            if not calls or calls[-1][1] is not logits or logits.dim() != 2:
                raise UserError(
                    f"FedRidge solves the model's last linear layer ({name!r}), but the model's output is not that of "
                    "this layer; use model: linear, or a model that ends with a linear layer"
                )
            yield calls[-1][0].cpu(), labels.cpu().long()
    finally:
        handle.remove()


def count_correct(candidates: Tensor, batches: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Correct predictions of each candidate, [J], doubles; candidates [J, D + 1, C], batches as of `head_inputs`."""
    correct = torch.zeros(len(candidates), dtype=torch.float64)
    for features, labels in batches:
        logits = features.to(candidates) @ candidates[:, :-1] + candidates[:, -1:]
        correct += (logits.argmax(dim=2) == labels).sum(dim=1)
    return correct


def find_impossible_sum(sums: Sums, samples: int) -> str | None:
    """Why these cannot be the sums of at most so many samples; None if they can."""
    gram, counts = sums.gram, sums.class_counts
    if bool((counts < 0).any()) or bool((counts != counts.round()).any()):
        return "its sums have no possible number of samples per class"
    if float(counts.sum()) > samples:
        return f"its sums are of {float(counts.sum()):.0f} samples, more than the {samples} that it announced"
    largest = float(gram.diagonal().max())
    if float((sums.class_sums.sum(dim=1) - gram[:, -1]).abs().max()) > _ROUNDING * max(largest, 1.0):
        return "its sums per class do not add up to its sums"
    shifted = gram.clone()
    shifted.diagonal().add_(_ROUNDING * max(largest, 1e-300))
    if float(gram.diagonal().min()) < 0 or bool(torch.linalg.cholesky_ex(shifted)[1]):
        return "its Gram matrix is not positive semidefinite"
    return None


def _head_keys(name: str) -> tuple[str, str]:
    return f"{name}.weight", f"{name}.bias"


def _body(entries: Memory) -> dict[str, Tensor]:
    """The layers before the last, of a payload or of the server's memory."""
    return {key[len(_BODY) :]: value for key, value in entries.items() if key.startswith(_BODY)}


def _head_weights(sums: Sums, strength: float, weights: Weights) -> dict[str, Tensor]:
    """The entries of the last layer: the solution, scaled so that its softmax are probabilities (Eq. 6)."""
    name = head_name(weights)
    solution = sums.solve([strength])[0]
    solution = solution * sums.logit_scale(solution)
    weight, bias = _head_keys(name)
    return {weight: solution[:-1].T.to(weights[weight].dtype).contiguous(), bias: solution[-1].to(weights[bias].dtype)}


def _are_counts(correct: Tensor | None, samples: float) -> bool:
    if correct is None or correct.shape != (len(RELATIVE_STRENGTHS),):
        return False
    return bool(((correct >= 0) & (correct <= samples) & (correct == correct.round())).all())


def _collect_rows(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    for batch, own in batches:
        rows.append(batch)
        labels.append(own)
        if sum(map(len, rows)) >= _ROWS:
            yield torch.cat(rows), torch.cat(labels)
            rows, labels = [], []
    if rows:
        yield torch.cat(rows), torch.cat(labels)


@torch.no_grad()
def _mean_cross_entropy(model: nn.Module, data: Iterable[Any]) -> float:
    total, samples = 0.0, 0
    device = next(model.parameters()).device
    with eval_mode(model):
        for inputs, labels in data:
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device).long(), reduction="sum")
            total, samples = total + float(loss), samples + len(labels)
    return total / max(samples, 1)
