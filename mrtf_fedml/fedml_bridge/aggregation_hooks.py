"""FedML's attacks, defences and noise around aggregation, in the order in which FedML's own server runs them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from fedml.core import ServerAggregator
from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy as FedMLPrivacy
from fedml.core.security.fedml_attacker import FedMLAttacker
from fedml.core.security.fedml_defender import FedMLDefender
from torch import Tensor

from ..algorithms import ClientUpdate
from ..algorithms.types import Weights, mean_loss
from ..models.state_dict import clone
from ..training.round import AggregationHooks

_Entries = Sequence[tuple[float, OrderedDict[str, Tensor]]]


class FedMLHooks(AggregationHooks):
    """`ServerAggregator`'s own hooks, for the aggregator that FedML sees."""

    def __init__(self, aggregator: ServerAggregator) -> None:
        self._aggregator = aggregator

    @property
    def defends(self) -> bool:
        """Whether `defense_args` enable a defence."""
        return bool(FedMLDefender.get_instance().is_defense_enabled())

    def before_aggregation(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
        """FedML's clipping, attacks and defences on the clients' models."""
        if not any(option.get_instance().is_enabled for option in (FedMLAttacker, FedMLDefender, FedMLPrivacy)):
            return updates
        # Copies: FedML writes into its arguments.
        copies = [(float(update.samples), clone(update.weights)) for update in updates]
        entries, _ = ServerAggregator.on_before_aggregation(self._aggregator, copies)
        return _match_updates(entries, copies, updates)

    def aggregate(self, updates: list[ClientUpdate], rule: Callable[[list[ClientUpdate]], Weights]) -> Weights:
        """The algorithm's average, or FedML's defence where one is enabled."""
        privacy = FedMLPrivacy.get_instance()
        if FedMLDefender.get_instance().is_defense_enabled() or privacy.to_compute_params_in_aggregation_enabled():
            entries = [(update.samples, clone(update.weights)) for update in updates]
            return ServerAggregator.aggregate(self._aggregator, entries)
        return rule(updates)

    def after_aggregation(self, aggregated: Weights) -> Weights:
        """FedML's noise and defences on the average."""
        return ServerAggregator.on_after_aggregation(self._aggregator, OrderedDict(aggregated))


def _match_updates(entries: _Entries, copies: _Entries, updates: list[ClientUpdate]) -> list[ClientUpdate]:
    """The updates that belong to the entries that FedML's hooks return.

    FedML's defences drop, reorder or rewrite entries, and the indexes that FedML reports do not always follow. An
    entry that is still the same object is matched by identity, a rewritten one by its position.
    """
    by_identity = {id(weights): update for update, (_, weights) in zip(updates, copies, strict=True)}
    by_position = updates
    if len(entries) != len(updates):
        merged = replace(updates[0], client=-1, loss=mean_loss(updates), payload={})
        by_position = [merged] * len(entries)
    return [
        replace(by_identity.get(id(weights), positioned), samples=int(samples), weights=weights)
        for positioned, (samples, weights) in zip(by_position, entries, strict=True)
    ]
