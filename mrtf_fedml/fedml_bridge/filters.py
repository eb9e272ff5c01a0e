"""FedML's attacks, defences and noise, as filters of the round, in the order in which FedML's own server has them."""

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
from ..algorithms.exchange import Weights, mean_loss
from ..models.weights import clone
from ..rounds.round import Filters

_Entries = Sequence[tuple[float, OrderedDict[str, Tensor]]]


class FedMLFilters(Filters):
    """What `ServerAggregator`'s own hooks do, for the aggregator that FedML sees."""

    def __init__(self, aggregator: ServerAggregator) -> None:
        self._aggregator = aggregator

    def local_models(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
        """FedML's clipping, attacks and defences on the clients' models."""
        if not any(option.get_instance().is_enabled for option in (FedMLAttacker, FedMLDefender, FedMLPrivacy)):
            return updates
        # Copies: FedML writes into what it is given.
        offered = [(float(update.samples), clone(update.weights)) for update in updates]
        entries, _ = ServerAggregator.on_before_aggregation(self._aggregator, offered)
        return _behind(entries, offered, updates)

    def average(self, updates: list[ClientUpdate], own: Callable[[list[ClientUpdate]], Weights]) -> Weights:
        """The algorithm's average, or FedML's defence where one is set."""
        privacy = FedMLPrivacy.get_instance()
        if FedMLDefender.get_instance().is_defense_enabled() or privacy.to_compute_params_in_aggregation_enabled():
            entries = [(update.samples, clone(update.weights)) for update in updates]
            return ServerAggregator.aggregate(self._aggregator, entries)
        return own(updates)

    def global_model(self, aggregated: Weights) -> Weights:
        """FedML's noise and defences on the average."""
        return ServerAggregator.on_after_aggregation(self._aggregator, OrderedDict(aggregated))


def _behind(entries: _Entries, offered: _Entries, updates: list[ClientUpdate]) -> list[ClientUpdate]:
    """The updates behind the entries that FedML's hooks let through.

    FedML's defences drop, reorder or rewrite entries, and the indexes that FedML reports do not always follow. An
    entry that is still the object we offered is known by that; one that was rewritten, by its place.
    """
    by_object = {id(weights): update for update, (_, weights) in zip(updates, offered, strict=True)}
    by_place = updates
    if len(entries) != len(updates):
        merged = replace(updates[0], client=-1, loss=mean_loss(updates), extra={})
        by_place = [merged] * len(entries)
    return [
        replace(by_object.get(id(weights), placed), samples=int(samples), weights=weights)
        for placed, (samples, weights) in zip(by_place, entries, strict=True)
    ]
