"""What the distilling baselines share: FedAvg's clients and average, then the average follows targets and goes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from ..models.weights import load, snapshot
from ..randomness import forked, torch_generator
from ..refinery.distill import DistillationSteps, rate_of_round
from ..refinery.teachers import votes_of
from ..settings.kinds import VALIDATED, Positive, PositiveShare, Steps
from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientUpdate, RoundReport, ServerState, Weights


@dataclass(frozen=True, config=VALIDATED)
class DistilledSettings:
    """What every distilling baseline takes of `mrtf_args`; a preset for MrTF does not touch it."""

    #: Distillation steps per round. 0 leaves the average as it is: FedAvg alone.
    refine_steps: Steps = 500
    #: Adam's rate in distillation. A new Adam starts in every round.
    refine_lr: Positive = 3e-4
    #: What the rate is multiplied by after each round. 1 keeps it.
    refine_lr_decay: PositiveShare = 1.0
    #: Server samples per step of distillation. At least 2, since BatchNorm needs two.
    refine_batch_size: Annotated[int, Field(ge=2)] = 64
    #: Looks at the student (MrTF's key says when) without better agreement with its targets after which the round's
    #: distillation ends. 0: all steps are made.
    refine_patience: Steps = 0


class Distilled(Algorithm):
    """theta_{t+1} is FedAvg's average after it has followed `targets` on the server's inputs, as in FedDF.

    Without a step of distillation (`refine_steps: 0`) it is FedAvg, to the bit. A subclass says what the targets are.
    """

    Settings = DistilledSettings
    section: ClassVar[str] = "mrtf_args"
    transductive: ClassVar[bool] = True
    own: DistilledSettings

    def targets(
        self, state: ServerState, updates: list[ClientUpdate], logits: Tensor, aggregated: Weights, bench: ServerBench
    ) -> Tensor:
        """The probabilities that the student is to follow, [M, C], from the clients' logits [K, M, C]."""
        raise NotImplementedError

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """Average, teach, and send the student back."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        if self.own.refine_steps == 0:
            return after, report
        known = bench.known_logits(updates)
        logits = torch.stack(
            [known[k] if k in known else bench.logits(update.weights) for k, update in enumerate(updates)]
        )
        targets = self.targets(state, updates, logits, aggregated, bench)
        before = bench.logits(aggregated)
        with forked(self.seed, "distillation dropout", state.round):
            taught = self.taught(aggregated, targets, state.round, bench)
        report = RoundReport(
            bench.new_steps(), predictions={"aggregated": before, "ensemble": targets}, votes=votes_of(logits)
        )
        return replace(after, weights=taught, answer=taught), report

    def taught(self, start: Weights, targets: Tensor, round_index: int, bench: ServerBench) -> Weights:
        """The student's weights after the round's steps."""
        load(bench.model, start)
        generator = torch_generator(self.seed, "distillation", round_index)
        bench.distil(bench.model, bench.inputs, targets, self.steps_of(round_index), generator)
        return snapshot(bench.model)

    def steps_of(self, round_index: int) -> DistillationSteps:
        """How the student is taught in round t."""
        rate = rate_of_round(self.own.refine_lr, self.own.refine_lr_decay, round_index)
        own = self.own
        return DistillationSteps(own.refine_steps, rate, own.refine_batch_size, refine_patience=own.refine_patience)
