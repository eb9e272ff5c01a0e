"""What the server has to work with in a round: its unlabelled inputs, and a model to read and distil with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models import FeatureTap, predict_logits, predict_logits_and_features
from ..models.compiled import is_compiled
from ..models.lone_sample import running_statistics
from ..models.precision import computing
from ..phases import DISTILLING, TEACHERS, phase
from ..refinery.distill import DistillationSettings, DistillationSteps, Taught, distill
from ..settings.precision import Precision
from .exchange import ClientUpdate, Weights


@dataclass(frozen=True)
class ServerBench:
    """The server's inputs, and one model into which weights are swapped. There is no label on it.

    Attributes:
        model: reusable; whoever swaps weights in leaves them there.
        inputs: x of the server, [M, ...], on the model's device.
        tap: reads h(x) from the model.
        classes: C.
        positions: T, where the model answers at each of T positions of a sample; every position is then a row, and
            M counts rows.
        precision: in what teachers are read and students distilled.
    """

    model: nn.Module
    inputs: Tensor
    tap: FeatureTap
    classes: int
    positions: int | None = None
    precision: Precision = field(default_factory=Precision)
    #: The weights that were read last, and their logits; at most one pair.
    _last: list[tuple[Weights, Tensor]] = field(default_factory=list, repr=False, compare=False)
    #: The weights that the last round refined, and their logits; at most one pair.
    _refined: list[tuple[Weights, Tensor]] = field(default_factory=list, repr=False, compare=False)
    #: Of each distillation since `new_steps` was asked.
    _steps: list[int] = field(default_factory=list, repr=False, compare=False)

    def logits(self, weights: Weights) -> Tensor:
        """The logits [M, C] that these weights give."""
        self.model.load_state_dict(weights)
        logits = self.read(self.model)[0]
        self._last[:] = [(weights, logits)]
        return logits

    def remember(self, weights: Weights, logits: Tensor) -> None:
        """These weights were read, and the next round starts from them where nothing is sent back.

        A compiled model's are forgotten: beside features it was read as it is written, and a run that is resumed reads
        compiled.
        """
        self._refined[:] = [] if is_compiled(self.model) else [(weights, logits)]

    def remembered(self, weights: Weights) -> Tensor | None:
        """Their logits [M, C], where these very weights were the last that were read, or refined; None otherwise.

        A round that was scored has read its answer, which is often what the next round starts from.
        """
        return next((logits for known, logits in [*self._last, *self._refined] if known is weights), None)

    def read(self, model: nn.Module, features: bool = False, **where: Any) -> tuple[Tensor, Any]:
        """One pass over the server's inputs: the logits [M, C] and, where asked for, h(x) [M, D].

        `allocate` may say where h(x) goes, as in `predict_logits_and_features`; by default it is a tensor.
        """
        with phase(TEACHERS), computing(self.precision.teachers, self.inputs.device):
            if features:
                return predict_logits_and_features(model, self.inputs, self.tap, **where)
            return predict_logits(model, self.inputs), None

    def features(self, weights: Weights, samples: Tensor) -> Tensor:
        """h(x) of the samples of these indices by these weights, [N, D]; T rows per sample where it has positions."""
        self.model.load_state_dict(weights)
        return predict_logits_and_features(self.model, self.inputs[samples.to(self.inputs.device)], self.tap)[1]

    def known_logits(self, updates: Sequence[ClientUpdate]) -> Mapping[int, Tensor]:
        """Logits [M, C] that others have computed, by the update's place; a server alone has none."""
        return {}

    def distil(
        self,
        student: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        settings: DistillationSettings,
        generator: torch.Generator,
    ) -> float:
        """Let the student follow the targets; the mean loss over the steps."""
        refuse_moves(inputs, settings)
        with (
            phase(DISTILLING),
            computing(self.precision.distilling, self.inputs.device),
            running_statistics(student, samples=len(inputs)),
        ):
            return self.counted(distill(student, inputs, targets, settings, generator), settings)

    def counted(self, taught: Taught, settings: DistillationSettings) -> float:
        """The mean loss over the steps, whose number is kept where it could be less than was asked for."""
        if DistillationSteps.of(settings).refine_patience > 0:
            self._steps.append(taught.steps)
        return taught.loss

    def new_steps(self) -> dict[str, float]:
        """`steps_made` since this was last asked, where `refine_patience` could end a distillation early."""
        steps = {"steps_made": float(sum(self._steps))} if self._steps else {}
        self._steps.clear()
        return steps


def refuse_moves(inputs: Tensor, settings: DistillationSettings) -> None:
    """Refuse `consistency` where there are no images to move."""
    consistency = DistillationSteps.of(settings).consistency
    if consistency > 0 and (inputs.dim() != 4 or not inputs.is_floating_point()):
        raise UserError(
            f"mrtf_args.consistency is {consistency:g}, which moves images, but a sample of the server's set "
            f"has the shape {tuple(inputs.shape[1:])}; leave it out"
        )
