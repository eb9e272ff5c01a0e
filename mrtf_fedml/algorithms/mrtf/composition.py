"""What MrTF is composed of: a base algorithm, the components that the settings name, and what it reports of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from ...config import MrTFSettings, RunSettings
from ...config.presets import RunFacts, resolve_base, resolve_settings
from ...errors import UserError
from ...models.state_dict import is_finite
from ...refinery.distillation import DistillationSettings
from ...rng import fork_rng, torch_generator
from ..base import Algorithm
from ..registry import algorithm_by_name
from ..server_context import ServerContext
from ..types import ClientUpdate, RoundReport, ServerState, Weights
from ..wrapper import AlgorithmWrapper
from .client_validation import ClientValidation, ValidationSummary
from .components import PREFIX, ComponentMemory, RoundContext, RoundTargets, build_component
from .loss_momentum import LossMomentum
from .model_selection import BROADCASTS, PREDICTIONS, ModelSelection, average_rounds
from .target_transforms import build_transforms
from .teacher_weighting import TEACHER_WEIGHTINGS, TeacherWeighting


class ComposedRefinery(AlgorithmWrapper):
    """A base with components around it: all of MrTF but the procedure of a round, which `mrtf.py` has."""

    allows_different_models: ClassVar[bool] = True
    Settings: ClassVar[type[Any]] = MrTFSettings
    section: ClassVar[str] = "mrtf_args"
    prefix: ClassVar[str] = PREFIX
    transductive: ClassVar[bool] = True

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        refinery = self.refinery = self.refinery_settings()
        self.base: Algorithm = _base_class(refinery.base)(settings)
        stepping = LossMomentum(self.base) if refinery.loss_momentum else self.base
        self.validation = ClientValidation(stepping, refinery.validation_fraction or 0.0)
        #: The base, with momentum and with clients that validate where the settings say so.
        self.inner = self.validation if refinery.client_validation else stepping
        self.weighting = build_component(
            refinery.teacher_weighting, "teacher_weighting", TeacherWeighting, TEACHER_WEIGHTINGS, refinery
        )
        self.transforms = build_transforms(refinery)
        self.broadcast = build_component(refinery.broadcast, "broadcast", ModelSelection, BROADCASTS, refinery)
        self.prediction = build_component(refinery.predict_with, "predict_with", ModelSelection, PREDICTIONS, refinery)

    @property
    def keeps_unmeasured_state(self) -> bool:
        """Whether the base's clients keep state that belongs to the base's weights, and its fit is not measured."""
        return self.base.keeps_client_state and not self.base.measures_client_state

    def known_logits(self, updates: Sequence[ClientUpdate], server: ServerContext) -> Mapping[int, Tensor]:
        """Logits of local models that need no pass, by index of the update."""
        return server.known_logits(updates)

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

    def validation_summary(self, state: ServerState) -> ValidationSummary | None:
        """What the clients found; None where they do not validate, or nothing is refined."""
        validates = self.refinery.client_validation and self.refinery.refine_steps > 0
        return ValidationSummary.of(state.memory) if validates else None

    def select_models(
        self,
        state: ServerState,
        base: ServerState,
        refined: Weights,
        context: RoundContext,
        memory: ComponentMemory,
        server: ServerContext,
    ) -> ServerState:
        """Which model the clients get and which one predicts; in the paper both are the refined one."""
        if self.refinery.refine_steps == 0:
            return base
        broadcast = self.broadcast.select(refined, base.weights, context, memory["broadcast"])
        prediction = self.prediction.select(refined, base.prediction_weights, context, memory["predict_with"])
        if self.refinery.average_rounds:
            prediction = average_rounds(prediction, state.prediction_weights, state.round)
        server.cache_logits(base.prediction_weights, context.predictions.aggregated)
        selected = replace(base, weights=broadcast, prediction_weights=prediction)
        if self.refinery.client_validation:
            selected = self.validation.propose(selected, base.prediction_weights, refined, server.positions)
        return selected

    def report_round(
        self,
        base: RoundReport,
        after: ServerState,
        refined: Weights,
        targets: RoundTargets,
        context: RoundContext,
        memory: ComponentMemory,
        server: ServerContext,
    ) -> RoundReport:
        """The metrics of the round, and the predictions to score."""
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
        base = _base_class(written.base)
        return resolve_settings(written, explicit, facts, base.keeps_client_state, base.allows_momentum)

    def refinery_settings(self) -> MrTFSettings:
        """The settings of the refinery: here all of the algorithm's."""
        settings: MrTFSettings = self.hparams
        return settings


def _base_class(name: str) -> type[Algorithm]:
    base = algorithm_by_name(name, "mrtf_args.base")
    if issubclass(base, ComposedRefinery):
        raise UserError(
            f"mrtf_args.base is {name!r}, which refines already; name what the refinery is to build on, such as FedAvg "
            "or Scaffold"
        )
    return base
