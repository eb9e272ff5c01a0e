"""What the server works with in a round: its unlabelled inputs, and a model to predict and distill with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..config.sections import Precision
from ..models import FeatureExtractor, predict_logits, predict_logits_and_features
from ..models.group import students
from ..models.modes import use_running_statistics
from ..models.precision import autocast
from ..models.state_dict import snapshot
from ..phases import DISTILLING, TEACHERS, phase
from ..refinery.distillation import DistillationSettings, distill
from ..refinery.teachers import predicted_classes
from .types import ClientUpdate, Weights


@dataclass(frozen=True)
class ModelPredictions:
    """Predictions of a round's models for the server's samples.

    Attributes:
        local: logits of the clients' models, [K, M, C].
        predicted: the class that each client's model predicts for each sample, [K, M].
        aggregated: logits of the aggregated model, [M, C].
        initial: logits of the model that was broadcast, [M, C]; None where it was not asked for.
        features: h(x) of the aggregated model, [M, D]; None where they were not asked for.
        positions: rows per sample: T where the model predicts at each of T positions, else 1.
    """

    local: Tensor
    predicted: Tensor
    aggregated: Tensor
    initial: Tensor | None = None
    features: Tensor | None = None
    positions: int = 1


@dataclass(frozen=True)
class ServerContext:
    """The server's inputs, and one model into which weights are loaded. It has no labels.

    Attributes:
        model: reusable; its weights are overwritten.
        inputs: x of the server, [M, ...], on the model's device.
        extractor: reads h(x) from the model.
        classes: C.
        positions: T, where the model predicts at each of T positions of a sample; every position is then a row, and M
            counts rows.
        precision: in which teachers predict and students are distilled.
    """

    model: nn.Module
    inputs: Tensor
    extractor: FeatureExtractor
    classes: int
    positions: int | None = None
    precision: Precision = field(default_factory=Precision)
    #: The weights that predicted last, and their logits; at most one pair.
    _last: list[tuple[Weights, Tensor]] = field(default_factory=list, repr=False, compare=False)
    #: The weights that the last round refined, and their logits; at most one pair.
    _refined: list[tuple[Weights, Tensor]] = field(default_factory=list, repr=False, compare=False)

    def logits(self, weights: Weights) -> Tensor:
        """The logits [M, C] of these weights."""
        self.model.load_state_dict(weights)
        logits = self.predict(self.model)[0]
        self._last[:] = [(weights, logits)]
        return logits

    def predict(self, model: nn.Module, features: bool = False) -> tuple[Tensor, Tensor | None]:
        """One pass of the model over the server's inputs: the logits [M, C] and, where asked for, h(x) [M, D]."""
        with phase(TEACHERS), autocast(self.precision.teachers, self.inputs.device):
            if features:
                return predict_logits_and_features(model, self.inputs, self.extractor)
            return predict_logits(model, self.inputs), None

    def predict_all(
        self,
        updates: Sequence[ClientUpdate],
        aggregated: Weights,
        initial: Weights | None = None,
        features: bool = False,
        known: Mapping[int, Tensor] | None = None,
    ) -> ModelPredictions:
        """One pass of each of a round's models; the aggregated model's weights stay in `model`.

        Args:
            updates: the clients' models.
            aggregated: theta_{t+1}.
            initial: theta_t, where its logits are wanted.
            features: whether h(x) of the aggregated model is wanted.
            known: logits that need no pass, by index of the update; by default `known_logits`.
        """
        # Before other models predict, which would replace what is cached.
        initial_logits = None if initial is None else self.cached_logits(initial)
        known = self.known_logits(updates) if known is None else known
        local, predicted = None, []
        for index, update in enumerate(updates):
            own = known[index] if index in known else self._predict_with(update.weights)[0]
            local = own.new_empty(len(updates), *own.shape) if local is None else local
            local[index] = own
            predicted.append(predicted_classes(own.unsqueeze(0)))
        assert local is not None
        if initial is not None and initial_logits is None:
            initial_logits = self._predict_with(initial)[0]
        aggregated_logits, extracted = self._predict_with(aggregated, features)
        return ModelPredictions(
            local, torch.cat(predicted), aggregated_logits, initial_logits, extracted, self.positions or 1
        )

    def features(self, weights: Weights, samples: Tensor) -> Tensor:
        """h(x) of the samples of these indices by these weights, [N, D]; T rows per sample where it has positions."""
        self.model.load_state_dict(weights)
        return predict_logits_and_features(self.model, self.inputs[samples.to(self.inputs.device)], self.extractor)[1]

    def known_logits(self, updates: Sequence[ClientUpdate]) -> Mapping[int, Tensor]:
        """Logits [M, C] that other processes have computed, by index of the update; a server alone has none."""
        return {}

    def cache_logits(self, weights: Weights, logits: Tensor) -> None:
        """Keep the logits of weights that may be broadcast next."""
        self._refined[:] = [(weights, logits)]

    def cached_logits(self, weights: Weights) -> Tensor | None:
        """The logits [M, C] of exactly this object, where it predicted last or was cached; None otherwise."""
        return next((logits for known, logits in [*self._last, *self._refined] if known is weights), None)

    def distill_weights(
        self, weights: Weights, targets: Tensor, settings: DistillationSettings, generator: torch.Generator
    ) -> Weights:
        """The weights of a student that started from `weights` and followed the targets (Eq. 1-2)."""
        self.model.load_state_dict(weights)
        self.distill(self.model, self.inputs, targets, settings, generator)
        return snapshot(self.model)

    def distill(
        self,
        student: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        settings: DistillationSettings,
        generator: torch.Generator,
    ) -> float:
        """Train the student to follow the targets; the mean loss over the steps."""
        with (
            phase(DISTILLING),
            autocast(self.precision.distilling, self.inputs.device),
            use_running_statistics(student, samples=len(inputs)),
        ):
            # Each member of a group follows the targets by itself.
            losses = [distill(part, inputs, targets, settings, generator) for part in students(student)]
            return sum(losses) / len(losses)

    def _predict_with(self, weights: Weights, features: bool = False) -> tuple[Tensor, Tensor | None]:
        self.model.load_state_dict(weights)
        return self.predict(self.model, features)
