"""FedML's ServerAggregator, made of any algorithm's server rule.

The order of FedML's hooks, on every backend: on_before_aggregation takes our reserved keys out, leaves out what is not
finite, then lets FedML's attacks and defences act; aggregate is the average alone (or FedML's defence);
on_after_aggregation lets FedML add noise or defend, then the algorithm finishes the round. The teachers are the list
that on_before_aggregation returned.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fedml.core import ServerAggregator
from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy
from fedml.core.security.fedml_defender import FedMLDefender
from torch import Tensor, nn

from ..algorithms import FedAvg
from ..algorithms.contract import (
    ClientUpdate,
    RoundReport,
    ServerBench,
    ServerState,
    mean_loss,
)
from ..errors import UserError
from ..models import FeatureTap
from ..models.fitness import check_fit
from ..models.positions import positions_of
from ..models.weights import (
    clone,
    is_finite,
    load,
    size_in_bytes,
    snapshot,
)
from ..runs.recorder import Recorder
from .arguments import AsFedAvg, settings_of
from .messages import (
    Payload,
    read_message,
    weights_of,
    with_extra,
)

_log = logging.getLogger(__name__)


class AlgorithmAggregator(ServerAggregator):
    """FedML's server side of an algorithm."""

    algorithm_class: ClassVar[type[FedAvg]]

    def __init__(self, model: nn.Module, args: Any) -> None:
        super().__init__(model, AsFedAvg(args))
        self.settings = settings_of(args)
        self.algorithm = self.algorithm_class(self.settings)
        self.state: ServerState = self.algorithm.first_state(snapshot(model))
        self.recorder: Recorder | None = None
        self._bench: ServerBench | None = None
        self._updates: list[ClientUpdate] = []
        self._clients: list[int] = []
        self._silent: list[int] = []
        self._left_out: list[int] = []
        self._bytes_up = 0
        self._handed_out = time.perf_counter()
        self._seconds_local = 0.0

    @property
    def bench(self) -> ServerBench:
        """The server's inputs and its reusable model."""
        if self._bench is None:
            raise UserError(
                f"{type(self).__name__} has no server set: call mrtf_fedml.register() before FedMLRunner, or "
                "aggregator.bind_server_set(inputs) yourself"
            )
        return self._bench

    @bench.setter
    def bench(self, bench: ServerBench) -> None:
        self._bench = bench

    def bind_server_set(self, inputs: Tensor, classes: int | None = None, device: Any = None) -> None:
        """Hand over the server's unlabelled inputs, [M, ...]."""
        if len(inputs) == 0:
            raise UserError("the server's set is empty; MrTF has nothing to label")
        self.model.to(device or "cpu")
        inputs = inputs.to(device or "cpu")
        logits = check_fit(self.model, inputs[:2], classes, f"the model ({type(self.model).__name__})")
        tap = FeatureTap(self.model, self.settings.model.feature_layer, inputs[:2])
        self._bench = ServerBench(self.model, inputs, tap, logits.shape[1], positions_of(logits))

    def begin_round(self, clients: list[int]) -> None:
        """The clients whose messages come next, in the order in which they will be listed."""
        self._clients = list(clients)
        self._silent = []
        self._handed_out = time.perf_counter()

    def leave_out(self, clients: list[int]) -> None:
        """Clients of this round from whom no message will come."""
        self._silent = list(clients)

    def get_model_params(self) -> OrderedDict[str, Tensor]:
        """theta_t, as clones: what the next clients receive."""
        return clone(self.state.weights)

    def extra_for(self, client: int) -> Payload:
        """What this client gets beside theta_t, under reserved keys; empty but in Scaffold."""
        return with_extra({}, self.algorithm.for_client(self.state, client))

    def set_model_params(self, model_parameters: Payload) -> None:
        """FedML hands back what on_after_aggregation returned; the state has it already."""
        load(self.model, weights_of(model_parameters))

    def on_before_aggregation(
        self, raw_client_model_or_grad_list: Sequence[tuple[float, Payload]]
    ) -> tuple[list[tuple[float, OrderedDict[str, Tensor]]], list[int]]:
        """Take the messages apart, leave out what is not finite, then FedML's attacks and defences."""
        self._seconds_local = time.perf_counter() - self._handed_out
        clients = self._clients or list(range(len(raw_client_model_or_grad_list)))
        senders = [client for client in clients if client not in self._silent]
        received = [
            read_message(client, samples, message)
            for client, (samples, message) in zip(senders, raw_client_model_or_grad_list, strict=True)
        ]
        kept = [update for update in received if self._is_usable(update)]
        self._clients = clients
        self._left_out = sorted(set(clients) - {update.client for update in kept})
        self._bytes_up = sum(size_in_bytes(message) for _, message in raw_client_model_or_grad_list)
        if not kept:
            self._updates = []
            _log.warning("no client of round %d can be used; the old model is kept", self.state.round)
            return [], []
        offered = [(update.samples, clone(update.weights)) for update in kept]
        entries, indexes = super().on_before_aggregation(offered)
        self._updates = _teachers(kept, offered, entries)
        return entries, indexes

    def aggregate(
        self, raw_client_model_or_grad_list: list[tuple[float, OrderedDict[str, Tensor]]]
    ) -> OrderedDict[str, Tensor]:
        """The average alone, or FedML's defence where one is set."""
        if not raw_client_model_or_grad_list:
            return self.get_model_params()
        privacy = FedMLDifferentialPrivacy.get_instance()
        if FedMLDefender.get_instance().is_defense_enabled() or privacy.to_compute_params_in_aggregation_enabled():
            # FedML writes the average into the first client's dict; the teachers must not feel it.
            return super().aggregate([(n, clone(weights)) for n, weights in raw_client_model_or_grad_list])
        return OrderedDict(self.algorithm.aggregate(self._updates))

    def on_after_aggregation(self, aggregated_model_or_grad: OrderedDict[str, Tensor]) -> OrderedDict[str, Tensor]:
        """FedML's noise and defence, then the algorithm's rule; returns what the next clients receive."""
        started = time.perf_counter()
        # What goes beside theta_t has the same size for all, so it is made once more for one of them alone.
        extra = size_in_bytes(self.extra_for(self._clients[0])) if self._clients else 0
        bytes_down = (size_in_bytes(self.state.weights) + extra) * len(self._clients)
        if self._updates:
            aggregated = super().on_after_aggregation(aggregated_model_or_grad)
            self.state, report = self.algorithm.finish_round(self.state, self._updates, aggregated, self.bench)
        else:
            self.state, report = self.algorithm.skipped_round(self.state), RoundReport()
        if self.recorder is not None:
            facts = {
                "clients": self._clients,
                "left_out": self._left_out,
                "seconds_local": self._seconds_local,
                "seconds_refine": time.perf_counter() - started,
                "bytes_up": self._bytes_up,
                "bytes_down": bytes_down,
            }
            self.recorder.round_done(self.state, report, self.bench, facts)
        return self.get_model_params()

    def test(self, test_data: Any, device: Any, args: Any) -> None:
        """Nothing: the round was scored, where labels exist, when it was recorded."""

    def _is_usable(self, update: ClientUpdate) -> bool:
        if not is_finite(update.weights):
            what = "weights"
        elif update.loss is not None and not math.isfinite(update.loss):
            what = "loss"
        elif update.variate is not None and not is_finite(update.variate):
            what = "variate"
        else:
            return True
        _log.warning(
            "client %d is left out of round %d: its %s are not finite (a lower learning_rate may help)",
            update.client,
            self.state.round,
            what,
        )
        return False


def _teachers(
    kept: list[ClientUpdate],
    offered: Sequence[tuple[float, OrderedDict[str, Tensor]]],
    entries: Sequence[tuple[float, OrderedDict[str, Tensor]]],
) -> list[ClientUpdate]:
    """The updates behind the entries that FedML's hooks let through.

    FedML's defences drop, reorder or rewrite entries, and the indexes that FedML reports do not always follow. An
    entry that is still the object we offered is known by that; one that was rewritten, by its place.
    """
    by_object = {id(weights): update for update, (_, weights) in zip(kept, offered, strict=True)}
    by_place = kept if len(entries) == len(kept) else [replace(kept[0], client=-1, loss=mean_loss(kept))] * len(entries)
    return [
        replace(by_object.get(id(weights), placed), samples=int(samples), weights=weights)
        for placed, (samples, weights) in zip(by_place, entries, strict=True)
    ]
