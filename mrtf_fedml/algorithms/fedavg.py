"""FedAvg, as used in Sect. 3.2 of the MrTF paper.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from torch import nn

from ..models.weights import average
from ..settings import RunSettings
from .contract import (
    ClientUpdate,
    RoundReport,
    ServerBench,
    ServerState,
    Weights,
    mean_loss,
)
from .local_training import LocalTerm, train_locally


class FedAvg:
    """Train locally, average: theta_{t+1} = 1/|S_t| sum_k theta_{t,k}. Also the base of the others."""

    name: ClassVar[str] = "FedAvg"
    #: Whether the server's rule reads the server's inputs.
    transductive: ClassVar[bool] = False
    #: How the keys begin that it reads beyond those of every algorithm (BaselineSettings, `mrtf_args`).
    own_keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.seed = settings.common.random_seed

    def first_state(self, weights: Weights) -> ServerState:
        """The state before round 0: everybody starts from the same weights."""
        return ServerState(round=0, weights=weights, answer=weights)

    def for_client(self, state: ServerState, client: int) -> Weights:
        """What the client needs beside theta_t, by parameter; nothing but in Scaffold."""
        return {}

    def train_client(
        self,
        model: nn.Module,
        start: Weights,
        data: Iterable[Any],
        samples: int,
        client: int,
        round_index: int,
        given: Weights | None = None,
    ) -> ClientUpdate:
        """The client's rule: E epochs from theta_t on its own samples; `given` is what `for_client` gave it."""
        weights, loss = train_locally(
            model,
            start,
            data,
            self.settings.train,
            self.seed,
            client=client,
            round_index=round_index,
            term=self.local_term(start),
        )
        return ClientUpdate(client, samples, weights, loss)

    def local_term(self, start: Weights) -> LocalTerm | None:
        """What the algorithm adds to the client's loss, for one client in one round."""
        return None

    def aggregate(self, updates: list[ClientUpdate]) -> Weights:
        """theta_{t+1}: the mean over the chosen clients, or weighted by their sample counts."""
        by_samples = self.settings.train.aggregation == "samples"
        counts = [float(update.samples) if by_samples else 1.0 for update in updates]
        return average([update.weights for update in updates], [count / sum(counts) for count in counts])

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """The server's rule after averaging: the average is both the answer and the next start."""
        after = replace(state, round=state.round + 1, weights=aggregated, answer=aggregated)
        return after, RoundReport(local_loss=mean_loss(updates))

    def skipped_round(self, state: ServerState) -> ServerState:
        """The state after a round in which nobody's update could be used: the old model is kept."""
        return replace(state, round=state.round + 1)
