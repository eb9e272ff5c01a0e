"""FedML's ServerAggregator, made of any algorithm's server rule: a thin adapter around `rounds.server.Server`.

Our own servers play whole rounds (`rounds.round.play_round`). The hooks here are the same round in the three steps in
which FedML's servers call it: on_before_aggregation sorts the replies out and lets FedML's attacks and defences act;
aggregate is the average alone, or FedML's defence; on_after_aggregation lets FedML add noise or defend, then the
algorithm finishes the round.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fedml.core import ServerAggregator
from torch import Tensor, nn

from ..algorithms import Algorithm
from ..models.weights import clone, load
from ..rounds.round import Arrived, Handout, finished, sorted_out
from ..rounds.server import Server
from .arguments import AsFedAvg, settings_of
from .filters import FedMLFilters
from .messages import Payload, update_of, weights_of

_Entries = list[tuple[float, OrderedDict[str, Tensor]]]


class AlgorithmAggregator(ServerAggregator):
    """FedML's server side of an algorithm."""

    algorithm_class: ClassVar[type[Algorithm]]

    def __init__(self, model: nn.Module, args: Any) -> None:
        super().__init__(model, AsFedAvg(args))
        self.server = Server(self.algorithm_class(settings_of(args)), model)
        self.filters = FedMLFilters(self)
        #: What was handed out, and the round in progress between two hooks.
        self._handout: Handout | None = None
        self._arrived = Arrived([])

    def bind_server_set(self, inputs: Tensor, classes: int | None = None, device: Any = None) -> None:
        """Hand over the server's unlabelled inputs, [M, ...]."""
        self.server.bind_server_set(inputs, classes, device)

    def begin_round(self, clients: Sequence[int]) -> None:
        """The clients whose messages come next, in the order in which they will be listed."""
        self._handout = Handout(self.server.algorithm, self.server.state, clients)

    def get_model_params(self) -> OrderedDict[str, Tensor]:
        """theta_t, as clones: what the next clients receive."""
        return clone(self.server.state.weights)

    def set_model_params(self, model_parameters: Payload) -> None:
        """FedML hands back what on_after_aggregation returned; the state has it already."""
        load(self.model, weights_of(model_parameters))

    def on_before_aggregation(
        self, raw_client_model_or_grad_list: Sequence[tuple[float, Payload]]
    ) -> tuple[_Entries, list[int]]:
        """Sort out the replies; then FedML's attacks and defences."""
        if self._handout is None:
            self.begin_round(range(len(raw_client_model_or_grad_list)))
        assert self._handout is not None
        replies = [
            update_of(client, samples, payload)
            for client, (samples, payload) in zip(self._handout.clients, raw_client_model_or_grad_list, strict=True)
        ]
        arrived = sorted_out(self.server.state, self._handout, replies)
        if arrived.updates:
            arrived = replace(arrived, updates=self.filters.local_models(arrived.updates))
        self._arrived = arrived
        return [(update.samples, OrderedDict(update.weights)) for update in arrived.updates], arrived.clients

    def aggregate(self, raw_client_model_or_grad_list: _Entries) -> OrderedDict[str, Tensor]:
        """The average alone, or FedML's defence where one is set."""
        if not self._arrived.updates:
            return self.get_model_params()
        return OrderedDict(self.filters.average(self._arrived.updates, self.server.algorithm.aggregate))

    def on_after_aggregation(self, aggregated_model_or_grad: OrderedDict[str, Tensor]) -> OrderedDict[str, Tensor]:
        """FedML's noise and defence, then the algorithm's rule; returns what the next clients receive."""
        server, aggregated = self.server, aggregated_model_or_grad
        if self._arrived.updates:
            aggregated = OrderedDict(self.filters.global_model(aggregated))
        server.state, _ = finished(server.algorithm, server.state, self._arrived, aggregated, server.bench)
        self._handout = None
        return self.get_model_params()

    def test(self, test_data: Any, device: Any, args: Any) -> None:
        """Nothing: a round is scored, where labels exist, when it is recorded."""
