"""MrTF: a base's clients and server rule, then the server refines the model on its unlabelled inputs.

Li, Yang, Zhan: "MrTF: Model Refinery for Transductive Federated Learning". The paper's base is FedAvg.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...config import MrTFSettings, RunSettings
from ...config.presets import RunFacts, resolve_base, resolve_settings
from ...errors import UserError
from ...models.state_dict import is_finite
from ...phases import TARGETS, phase
from ...refinery.clustering import reassign_by_prototypes
from ...refinery.distillation import DistillationSettings
from ...refinery.ensemble import add_self_teaching, combine_teachers, local_weight
from ...rng import fork_rng, torch_generator
from ..base import Algorithm
from ..registry import algorithm_by_name, register_algorithm
from ..scaffold import COEFFICIENT_METRIC
from ..server_context import ModelPredictions, ServerContext
from ..types import ClientUpdate, Metric, RoundReport, ServerState, Weights, mean_loss
from ..wrapper import AlgorithmWrapper
from .client_validation import VALIDATION_METRICS, ClientValidation, ValidationSummary
from .components import PREFIX, ComponentMemory, RoundContext, RoundTargets, build_component
from .model_selection import BROADCASTS, PREDICTIONS, ModelSelection
from .target_transforms import build_transforms
from .teacher_weighting import TEACHER_WEIGHTINGS, TeacherWeighting

_log = logging.getLogger(__name__)

#: The relative loss that is assumed where no client reports a loss: halfway.
_UNREPORTED_RELATIVE_LOSS = 0.5


@register_algorithm
class MrTF(AlgorithmWrapper):
    """The base's round, then refine (Sect. 4.4).

    theta_{t+1} is what the base's server rule makes of the average; with FedAvg it is the average. Without refining
    steps (`refine_steps: 0`) everything is the base's, to the bit. What goes beyond the paper is a component: a teacher
    weighting, target transforms, model selection, and client validation around the base.
    """

    name: ClassVar[str] = "MrTF"
    allows_different_models: ClassVar[bool] = True
    Settings: ClassVar[type[Any]] = MrTFSettings
    section: ClassVar[str] = "mrtf_args"
    prefix: ClassVar[str] = PREFIX
    transductive: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("local_weight", "weight of the local models (u_t)"),
        *VALIDATION_METRICS,
        COEFFICIENT_METRIC,
    )

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        refinery = self.refinery = self.refinery_settings()
        self.base: Algorithm = _base_class(refinery.base)(settings)
        self.validation = ClientValidation(self.base, refinery.validation_fraction or 0.0)
        #: The base, with clients that validate where the settings say so.
        self.inner = self.validation if refinery.client_validation else self.base
        self.weighting = build_component(
            refinery.teacher_weighting, "teacher_weighting", TeacherWeighting, TEACHER_WEIGHTINGS, refinery
        )
        self.transforms = build_transforms(refinery)
        self.broadcast = build_component(refinery.broadcast, "broadcast", ModelSelection, BROADCASTS, refinery)
        self._has_warned = False
        self.prediction = build_component(refinery.predict_with, "predict_with", ModelSelection, PREDICTIONS, refinery)

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
        after = base
        if self.refinery.refine_steps > 0:
            # The paper: the refined model, both ways.
            context = replace(context, targets=targets.targets, validation=self.validation_summary(base))
            broadcast = self.broadcast.select(refined, base.weights, context, memory["broadcast"])
            prediction = self.prediction.select(refined, base.prediction_weights, context, memory["predict_with"])
            server.cache_logits(base.prediction_weights, predictions.aggregated)
            after = replace(base, weights=broadcast, prediction_weights=prediction)
            if self.refinery.client_validation:
                after = self.validation.propose(after, base.prediction_weights, refined, server.positions)
        after = replace(after, memory={**after.memory, **memory.flatten()})
        return after, self._report(report, after, refined, targets, context, memory, server)

    def learn_labels(self, state: ServerState, targets: Tensor, server: ServerContext) -> ServerState:
        """One more refinement of the model that predicts, with these targets.

        After the last round and not before: the model without the labels gives an unbiased accuracy on their samples.
        """
        if self.refinery.refine_steps == 0:
            return state
        generator = torch_generator(self.seed, "known labels", state.round)
        with fork_rng(self.seed, "known labels dropout", state.round):
            weights = server.distill_weights(state.prediction_weights, targets, self.distillation(), generator)
        return replace(state, prediction_weights=weights) if is_finite(weights) else state

    @property
    def keeps_unmeasured_state(self) -> bool:
        """Whether the base's clients keep state that belongs to the base's weights, and its fit is not measured."""
        return self.base.keeps_client_state and not self.base.measures_client_state

    def predict(
        self, state: ServerState, updates: Sequence[ClientUpdate], base: ServerState, server: ServerContext
    ) -> ModelPredictions:
        """Steps (1)-(2): one pass of each model; the aggregated model's yields h(x) too, where the round clusters."""
        clusters = self.refinery.cluster_refinery and state.round >= self.refinery.cluster_warmup
        initial = state.weights if self.refinery.self_teaching else None
        known = self.known_logits(updates, server)
        return server.predict_all(updates, base.prediction_weights, initial, clusters, known)

    def known_logits(self, updates: Sequence[ClientUpdate], server: ServerContext) -> Mapping[int, Tensor]:
        """Logits of local models that need no pass, by index of the update."""
        return server.known_logits(updates)

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

    def transform_targets(
        self, ensemble: Tensor, targets: Tensor, u_t: float, context: RoundContext, memory: ComponentMemory
    ) -> RoundTargets:
        """The targets in the models' precision, after the transforms; the paper has none."""
        dtype = context.predictions.local.dtype
        ensemble, targets = ensemble.to(dtype), targets.to(dtype)
        for name, transform in self.transforms.items():
            targets = transform.on_targets(targets, context, memory[name])
        student = targets
        for name, transform in self.transforms.items():
            student = transform.on_student_targets(student, context, memory[name])
        return RoundTargets(ensemble, targets, student, u_t)

    def distillation(self) -> DistillationSettings:
        """How the student is trained in step (5)."""
        return self.refinery

    def train_loss(self, updates: Sequence[ClientUpdate], memory: ComponentMemory, classes: int) -> float:
        """1/|S| sum_k L_{t,k}; half of log C where no client reports a loss."""
        loss = mean_loss(updates)
        if loss is not None:
            return loss
        if not self._has_warned:
            self._has_warned = True
            _log.warning("no client reports its training loss; u_t takes it as half of log C (our trainers report it)")
        return _UNREPORTED_RELATIVE_LOSS * math.log(max(classes, 2))

    def validation_summary(self, state: ServerState) -> ValidationSummary | None:
        """What the clients found; None where they do not validate."""
        return ValidationSummary.of(state.memory) if self.refinery.client_validation else None

    def _report(
        self,
        base: RoundReport,
        after: ServerState,
        refined: Weights,
        targets: RoundTargets,
        context: RoundContext,
        memory: ComponentMemory,
        server: ServerContext,
    ) -> RoundReport:
        predictions = {
            "aggregated": context.predictions.aggregated,
            "ensemble": targets.ensemble,
            "targets": targets.targets,
        }
        if self.refinery.refine_steps > 0 and after.prediction_weights is not refined:
            # The model that predicts is scored in any case.
            predictions["refined"] = server.logits(refined)
        metrics: dict[str, float | None] = {**base.metrics, "local_weight": targets.local_weight}
        if context.validation is not None:
            # On a copy of its memory: this round's has been updated by `select`.
            share = self.prediction.refined_share(context, dict(memory["predict_with"]))
            metrics |= context.validation.metrics(share, (self.refinery.validation_fraction or 0.0) > 0)
        return RoundReport(metrics, {**base.predictions, **predictions}, teacher_labels=context.predictions.predicted)

    @property
    def reads_teachers_on_ranks(self) -> bool:
        """`refine_on: teachers`."""
        return bool(self.hparams.refine_on == "teachers")

    @classmethod
    def resolve_hparams(cls, settings: RunSettings) -> Any:
        """Preset, explicit keys and the facts of the run make the settings (`config/presets.py`)."""
        written = settings.algorithm_section(cls.Settings, cls.section_name())
        facts = RunFacts.of(settings)
        written = replace(written, base=resolve_base(written.base, facts))
        explicit = [key for key, value in settings.explicit.get(cls.section_name(), {}).items() if value is not None]
        return resolve_settings(written, explicit, facts, _base_class(written.base).keeps_client_state)

    def refinery_settings(self) -> MrTFSettings:
        """The settings of the refinery: here all of the algorithm's."""
        settings: MrTFSettings = self.hparams
        return settings


def _base_class(name: str) -> type[Algorithm]:
    base = algorithm_by_name(name, "mrtf_args.base")
    if issubclass(base, MrTF):
        raise UserError(
            f"mrtf_args.base is {name!r}, which refines already; name what the refinery is to build on, such as FedAvg "
            "or Scaffold"
        )
    return base
