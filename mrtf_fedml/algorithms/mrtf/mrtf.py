"""MrTF: a base's clients and server rule, then the server refines the model on its unlabelled inputs.

Li, Yang, Zhan: "MrTF: Model Refinery for Transductive Federated Learning". The paper's base is FedAvg.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from ...phases import TARGETS, phase
from ...refinery.clustering import reassign_by_prototypes
from ...refinery.ensemble import add_self_teaching, combine_teachers, local_weight
from ...rng import fork_rng, torch_generator
from ..registry import register_algorithm
from ..scaffold import COEFFICIENT_METRIC
from ..server_context import ModelPredictions, ServerContext
from ..types import ClientUpdate, Metric, RoundReport, ServerState, Weights, mean_loss
from .client_validation import VALIDATION_METRICS
from .components import ComponentMemory, RoundContext, RoundTargets
from .composition import ComposedRefinery
from .loss_momentum import MOMENTUM_METRIC

_log = logging.getLogger(__name__)

#: The relative loss that is assumed where no client reports a loss: halfway.
_UNREPORTED_RELATIVE_LOSS = 0.5


@register_algorithm
class MrTF(ComposedRefinery):
    """The base's round, then refine (Sect. 4.4).

    theta_{t+1} is what the base's server rule makes of the average; with FedAvg it is the average. Without refining
    steps (`refine_steps: 0`) everything is the base's, to the bit. What goes beyond the paper is a component: a teacher
    weighting, target transforms, model selection, and client validation around the base (`composition.py`).
    """

    name: ClassVar[str] = "MrTF"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("local_weight", "weight of the local models (u_t)"),
        *VALIDATION_METRICS,
        COEFFICIENT_METRIC,
        MOMENTUM_METRIC,
    )
    _has_warned = False

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """The global procedure of Sect. 4.4, its steps (1)-(5) in order."""
        memory = ComponentMemory(state.memory)
        base, report = self.inner.server_update(self.inner_state(state), updates, aggregated, server)
        with fork_rng(self.seed, "distillation dropout", state.round):
            # (1)-(2) predictions of theta_t, the theta_{t,k} and theta_{t+1} on the server's samples
            predictions = self.predict(state, updates, base, server)
            with phase(TARGETS):
                loss = self.train_loss(updates, memory, server.classes)
                context = RoundContext.of(self.refinery, predictions, loss, state.round, self.keeps_unmeasured_state)
                # (3)-(4) rectify, Eq. 10, and re-assign by clusters, Eq. 11-12
                targets = self.make_targets(context, memory)
            # (5) the aggregated model follows the targets, Eq. 1-2
            generator = torch_generator(self.seed, "distillation", state.round)
            refined = server.distill_weights(base.prediction_weights, targets.student, self.distillation(), generator)
        context = replace(context, targets=targets.targets, validation=self.validation_summary(base))
        after = self.select_models(state, base, refined, context, memory, server)
        after = replace(after, memory={**after.memory, **memory.flatten()})
        return after, self.report_round(report, after, refined, targets, context, memory, server)

    def predict(
        self, state: ServerState, updates: Sequence[ClientUpdate], base: ServerState, server: ServerContext
    ) -> ModelPredictions:
        """Steps (1)-(2): one pass of each model; the aggregated model's yields h(x) too, where the round clusters."""
        clusters = self.refinery.cluster_refinery and state.round >= self.refinery.cluster_warmup
        initial = state.weights if self.refinery.self_teaching else None
        known = self.known_logits(updates, server)
        return server.predict_all(updates, base.prediction_weights, initial, clusters, known)

    def make_targets(self, context: RoundContext, memory: ComponentMemory) -> RoundTargets:
        """Steps (3)-(4): the distillation targets.

        Computed in float64: the cost is small compared with the models' passes, and means over many samples keep their
        digits.
        """
        predictions, settings = context.predictions, self.refinery
        u_t = 1.0 if predictions.initial is None else local_weight(context.train_loss, context.classes)
        blocks = []
        for local, both in zip(context.local_teachers(), context.global_teachers(), strict=False):
            weights = self.weighting.weights(local, context, memory["teacher_weighting"])
            block = combine_teachers(local, weights, settings.teacher)  # Eq. 7, with the weights of Eq. 10
            blocks.append(block if both is None else add_self_teaching(block, both.probabilities, u_t))  # Eq. 10
        ensemble = torch.cat(blocks)
        for name, transform in self.transforms.items():
            ensemble = transform.on_ensemble(ensemble, context, memory[name])
        targets = ensemble
        if predictions.features is not None:
            targets = reassign_by_prototypes(ensemble, predictions.features, settings.cluster_temperature)  # Eq. 11-12
        return self.transform_targets(ensemble, targets, u_t, context, memory)

    def train_loss(self, updates: Sequence[ClientUpdate], memory: ComponentMemory, classes: int) -> float:
        """1/|S| sum_k L_{t,k}; half of log C where no client reports a loss."""
        loss = mean_loss(updates)
        if loss is not None:
            return loss
        if not self._has_warned:
            self._has_warned = True
            _log.warning("no client reports its training loss; u_t takes it as half of log C (our trainers report it)")
        return _UNREPORTED_RELATIVE_LOSS * math.log(max(classes, 2))
