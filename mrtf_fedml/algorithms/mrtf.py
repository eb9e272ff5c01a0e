"""MrTF: the clients do what FedAvg's do; the server refines the average on its unlabelled inputs.

Li, Yang, Zhan: "MrTF: Model Refinery for Transductive Federated Learning".
"""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import fields, replace
from typing import ClassVar

from ..models.weights import mix
from ..randomness import forked, torch_generator
from ..refinery import refine
from ..refinery.rectify import relative_loss
from ..settings import MrTFSettings, RunSettings
from .contract import (
    ClientUpdate,
    RoundReport,
    ServerBench,
    ServerState,
    Weights,
    mean_loss,
)
from .fedavg import FedAvg

_log = logging.getLogger(__name__)

#: The share of log C that stands in for the mean local loss where no client reports one: halfway.
UNREPORTED_RELATIVE_LOSS = 0.5


class MrTF(FedAvg):
    """Average, then refine (Sect. 4.4); the refined model is the answer."""

    name: ClassVar[str] = "MrTF"
    transductive: ClassVar[bool] = True
    own_keys: ClassVar[tuple[str, ...]] = tuple(field.name for field in fields(MrTFSettings))

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.refinery: MrTFSettings = settings.mrtf
        self._warned_of_no_loss = False

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """Refine theta_{t+1}; the refined model answers, and `feedback` says what the next clients receive."""
        reported = mean_loss(updates)
        local_loss = self._half_known(bench.classes) if reported is None else reported
        with forked(self.seed, "distillation dropout", state.round):
            refined = refine(
                bench.model,
                initial=state.weights,
                local=[update.weights for update in updates],
                aggregated=aggregated,
                inputs=bench.inputs,
                local_loss=local_loss,
                settings=self.refinery_of(state.round),
                read=bench.read,
                generator=torch_generator(self.seed, "distillation", state.round),
                clustering=state.round >= self.refinery.cluster_warmup,
                previous_targets=state.targets,
                known_logits=bench.known_logits(updates),
                distil=bench.distil,
            )
        after = replace(
            state,
            round=state.round + 1,
            weights=self._next_start(refined.weights, aggregated, relative_loss(local_loss, bench.classes)),
            answer=refined.weights,
            targets=refined.targets if self.refinery.target_smoothing > 0 else None,
        )
        report = RoundReport(
            reported, refined.local_weight, refined.aggregated_logits, refined.ensemble, refined.targets
        )
        return after, report

    def refinery_of(self, round_index: int) -> MrTFSettings:
        """The switches in round t, whose refining rate is refine_lr * refine_lr_decay^t."""
        rate = self.refinery.refine_lr * self.refinery.refine_lr_decay**round_index
        # After very many rounds the number would become 0, which is no rate.
        return replace(self.refinery, refine_lr=max(rate, sys.float_info.min))

    def _next_start(self, refined: Weights, aggregated: Weights, relative: float) -> Weights:
        """theta_t of the next round. `adaptive` trusts the refined model as long as the clients know little."""
        if self.refinery.feedback == "always":
            return refined
        if self.refinery.feedback == "never":
            return aggregated
        return mix(refined, aggregated, relative)

    def _half_known(self, classes: int) -> float:
        if not self._warned_of_no_loss:
            self._warned_of_no_loss = True
            _log.warning(
                "no client reports its training loss; u_t and adaptive feedback take it as half of log C "
                "(a trainer of ours reports it)"
            )
        return UNREPORTED_RELATIVE_LOSS * math.log(max(classes, 2))
