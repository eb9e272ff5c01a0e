"""An algorithm around another one: it does what the inner one does, and overrides what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import nn

from .base import Algorithm
from .local_training import LocalTerm
from .server_context import ServerContext
from .types import ClientTask, ClientUpdate, Memory, Payload, ServerState, Weights


class AlgorithmWrapper(Algorithm):
    """Delegates to `inner`, whose memory and payload do not contain the wrapper's entries.

    Class attributes:
        prefix: begins the names of the wrapper's entries in the server's memory and in payloads.
    """

    prefix: ClassVar[str]
    inner: Algorithm

    def init_state(self, weights: Weights) -> ServerState:
        """The inner algorithm's."""
        return self.inner.init_state(weights)

    @property
    def aggregates_payload(self) -> bool:
        """The inner algorithm's."""
        return self.inner.aggregates_payload

    def eligible_clients(self, state: ServerState, available: Sequence[int]) -> Sequence[int]:
        """The inner algorithm's."""
        return self.inner.eligible_clients(self.inner_state(state), available)

    def max_payload_bytes(self, weights: Weights) -> int:
        """The inner algorithm's."""
        return self.inner.max_payload_bytes(weights)

    def client_payload(self, state: ServerState, client: int) -> Payload:
        """The inner algorithm's."""
        return self.inner.client_payload(self.inner_state(state), client)

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """The inner algorithm's."""
        return self.inner.train_client(model, task)

    def local_term(self, task: ClientTask) -> LocalTerm | None:
        """The inner algorithm's."""
        return self.inner.local_term(task)

    def validate_update(self, state: ServerState, update: ClientUpdate) -> str | None:
        """The inner algorithm's."""
        return self.inner.validate_update(self.inner_state(state), self.inner_update(update))

    def aggregate(self, updates: list[ClientUpdate]) -> Weights:
        """The inner algorithm's."""
        return self.inner.aggregate(updates)

    def evaluation_state(self, state: ServerState, server: ServerContext) -> ServerState | None:
        """The inner algorithm's."""
        return self.inner.evaluation_state(self.inner_state(state), server)

    def skip_round(self, state: ServerState) -> ServerState:
        """The inner algorithm's; the wrapper's memory stays."""
        after = self.inner.skip_round(self.inner_state(state))
        own = {name: value for name, value in state.memory.items() if name.startswith(self.prefix)}
        return replace(after, memory={**after.memory, **own})

    def has_own_client_rule(self) -> bool:
        """The inner algorithm's."""
        return self.inner.has_own_client_rule()

    def sections(self) -> dict[str, dict[str, Any]]:
        """Its own keys, and those of the inner algorithm."""
        sections = self.inner.sections()
        for section, values in super().sections().items():
            sections[section] = {**sections.get(section, {}), **values}
        return sections

    def inner_state(self, state: ServerState) -> ServerState:
        """The state as the inner algorithm knows it."""
        return replace(state, memory=self.inner_entries(state.memory))

    def inner_update(self, update: ClientUpdate) -> ClientUpdate:
        """The update as the inner algorithm knows it."""
        return replace(update, payload=self.inner_entries(update.payload))

    def inner_entries(self, entries: Memory) -> dict[str, Any]:
        """The entries that are not the wrapper's."""
        return {name: value for name, value in entries.items() if not name.startswith(self.prefix)}
