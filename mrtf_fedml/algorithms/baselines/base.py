"""What the baselines share: distillation of the average, and what clients report of their features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from ...config import RunSettings
from ...config.types import VALIDATED, NonNegativeInt, PositiveFloat
from ...errors import UserError
from ...models import FeatureExtractor, match_layout
from ...models.modes import eval_mode
from ...models.state_dict import load_weights
from ...refinery.teachers import predicted_classes
from ...rng import fork_rng, torch_generator
from ..base import Algorithm
from ..server_context import ServerContext
from ..types import ClientTask, ClientUpdate, RoundReport, ServerState, Weights


@dataclass(frozen=True, config=VALIDATED)
class DistillationBaselineSettings:
    """The keys of `mrtf_args` that every distilling baseline reads; MrTF's presets do not change them."""

    #: Distillation steps per round. 0 means FedAvg.
    refine_steps: NonNegativeInt = 500
    #: Adam's learning rate in distillation. Each round starts a new Adam.
    refine_lr: PositiveFloat = 3e-4
    #: Batch size of distillation. At least 2, since BatchNorm needs two samples.
    refine_batch_size: Annotated[int, Field(ge=2)] = 64


class DistillationBaseline(Algorithm):
    """theta_{t+1} is FedAvg's average after distillation of `targets` on the server's inputs, as in FedDF.

    With `refine_steps: 0` it is FedAvg, to the bit. A subclass defines the targets.
    """

    Settings = DistillationBaselineSettings
    section: ClassVar[str] = "mrtf_args"
    transductive: ClassVar[bool] = True
    hparams: DistillationBaselineSettings

    def targets(
        self,
        state: ServerState,
        updates: list[ClientUpdate],
        logits: Tensor,
        aggregated: Weights,
        server: ServerContext,
    ) -> Tensor:
        """The target probabilities of the student, [M, C], from the clients' logits [K, M, C]."""
        raise NotImplementedError

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """Average, distill, and broadcast the student."""
        after, report = super().server_update(state, updates, aggregated, server)
        if self.hparams.refine_steps == 0:
            return after, report
        known = server.known_logits(updates)
        logits = torch.stack(
            [known[k] if k in known else server.logits(update.weights) for k, update in enumerate(updates)]
        )
        targets = self.targets(state, updates, logits, aggregated, server)
        before = server.logits(aggregated)
        with fork_rng(self.seed, "distillation dropout", state.round):
            student = self.distill(aggregated, targets, state.round, server)
        report = RoundReport(
            predictions={"aggregated": before, "ensemble": targets}, teacher_labels=predicted_classes(logits)
        )
        return replace(after, weights=student, prediction_weights=student), report

    def distill(self, start: Weights, targets: Tensor, round_index: int, server: ServerContext) -> Weights:
        """The student's weights after the round's steps."""
        generator = torch_generator(self.seed, "distillation", round_index)
        return server.distill_weights(start, targets, self.hparams, generator)


def client_features(model: nn.Module, task: ClientTask, feature_layer: str | None, seed: int) -> tuple[Tensor, Tensor]:
    """h(x; theta_t) of all of the client's samples, [N, D], and their labels, [N]; doubles on the CPU.

    In eval mode and without gradients. If the model predicts at each of T positions, there are T rows per sample.
    """
    load_weights(model, task.weights)
    device = next(model.parameters()).device
    data: Any = task.data
    # The order affects rounding only, but every process must give the same bytes.
    generator = torch_generator(seed, "features", task.client, task.round)
    batches = data.shuffled_batches(generator) if hasattr(data, "shuffled_batches") else data
    extractor: FeatureExtractor | None = None
    features, labels = [], []
    with eval_mode(model), torch.no_grad():
        for inputs, classes in batches:
            # A fresh process has not converted its model yet: the layout affects rounding.
            inputs = match_layout(model, inputs.to(device))
            extractor = extractor or FeatureExtractor(model, feature_layer, inputs[:2])
            features.append(extractor.extract(model, inputs)[1].cpu().double())
            labels.append(classes.cpu().long().flatten())
    return torch.cat(features), torch.cat(labels)


def reject_privacy(settings: RunSettings, name: str, reported: str) -> None:
    """Raise a `UserError` if `dp_args` are set: they add no noise to what the algorithm's clients report."""
    if settings.privacy.has_any_dp:
        raise UserError(
            f"{name}'s clients report {reported} without noise, so that no privacy (dp_args) can be guaranteed; remove "
            "clip, sigma and enable_dp, or choose another algorithm"
        )


def payload_doubles(payload: Mapping[str, Tensor], names: tuple[str, ...]) -> list[Tensor] | None:
    """The payload's entries of these names, as doubles; None if one is missing.

    A model that FedML's defences have computed from several clients' models has no payload.
    """
    return [payload[name].double() for name in names] if all(name in payload for name in names) else None
