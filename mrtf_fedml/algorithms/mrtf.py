"""MrTF: a base's clients and server rule, then the server refines the model on its unlabelled inputs.

Li, Yang, Zhan: "MrTF: Model Refinery for Transductive Federated Learning". The paper's base is FedAvg.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from ..errors import UserError
from ..randomness import forked, torch_generator
from ..refinery.distill import rate_of_round
from ..refinery.propagation import LEAST_PROBABILITY, propagated
from ..refinery.rectify import loss_before, relative_loss
from ..refinery.refine import refine
from ..refinery.shares import named_shares
from ..settings import MrTFSettings, RunSettings
from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientTask, ClientUpdate, Extra, Memory, RoundReport, ServerState, Weights, mean_loss
from .feedback import base_knows_the_start, between, next_start
from .judging import (
    CLASSES,
    REFINERY,
    kept_candidates,
    sent_candidates,
    settled,
    unless_asked_to_judge,
    without_judging,
)
from .local_training import LocalTerm
from .registry import algorithm_named, register_algorithm
from .standing_on import base_word, unless_named
from .teachers_read import teachers_read
from .verdict import Verdict
from .votes import told_votes, unusable_votes
from .witnesses import kept_from_training, parted, summons

_log = logging.getLogger(__name__)

#: The share of log C that stands in for the mean local loss where no client reports one: halfway.
UNREPORTED_RELATIVE_LOSS = 0.5
_TARGETS = REFINERY + "targets"
_SHARES = REFINERY + "shares"
_VERDICT = REFINERY + "verdict"
_LOSSES = REFINERY + "losses"


@register_algorithm
class MrTF(Algorithm):
    """The base's round, then refine (Sect. 4.4); the refined model is the answer.

    theta_{t+1} is what the base's server rule makes of the average; with FedAvg it is the average. Without a step of
    refining (`refine_steps: 0`) everything is the base's, to the bit.
    """

    name: ClassVar[str] = "MrTF"
    Settings: ClassVar[type[Any]] = MrTFSettings
    section: ClassVar[str] = "mrtf_args"
    transductive: ClassVar[bool] = True

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        refinery = self.refinery_settings(settings)
        self.refinery = replace(refinery, base=base_word(refinery.base, settings))
        self.base = self._base(settings)
        self.base.trains_as_released = self.refinery.local_training == "released"
        if self.base.keeps_client_state and self.refinery.feedback != "judged" and not self._is_given("feedback"):
            self.refinery = replace(self.refinery, feedback="never")
        self.refinery = settled(self.refinery, self.section, self._is_given, settings.privacy.promised)
        if isinstance(self.own, MrTFSettings):
            # What a run writes down is what it does.
            self.own = self.refinery
        self.judging = self.refinery.client_judgement
        self.kept_back, self.witnesses = kept_from_training(self.refinery, settings.train)
        self._warned_of_no_loss = False

    def refinery_settings(self, settings: RunSettings) -> MrTFSettings:
        """The refinery's switches."""
        return settings.of(MrTFSettings, self.section)

    def sections(self) -> dict[str, dict[str, Any]]:
        """Its own keys, and those of its base."""
        sections = self.base.sections()
        for section, values in super().sections().items():
            sections[section] = {**sections.get(section, {}), **values}
        return sections

    @classmethod
    def where_clients_only_train(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """They do not judge, and keep no variates."""
        return {**unless_asked_to_judge(given), **unless_named(given)}

    def has_own_client_rule(self) -> bool:
        """Its clients are the base's, and may judge."""
        return self.judging or self.base.has_own_client_rule()

    def first_state(self, weights: Weights) -> ServerState:
        """The base's."""
        return self.base.first_state(weights)

    def for_client(self, state: ServerState, client: int) -> Extra:
        """The base's, the models to judge, and for which classes."""
        extra = self.base.for_client(_of_base(state), client)
        return {**extra, **sent_candidates(state)} if self.judging and state.round > 0 else extra

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        """The base's; before it trains, a client judges on samples of its own."""
        if not self.judging:
            return self.base.train_client(model, task)
        training, judged, witnesses = parted(task, self.kept_back, self.seed)
        votes = told_votes(model, task, judged, witnesses)
        plain = replace(task, data=training, extra=without_judging(task.extra))
        update = self.base.train_client(model, plain)
        return replace(update, extra={**update.extra, **votes})

    def unusable(self, state: ServerState, update: ClientUpdate) -> str | None:
        """By the rules of judging, or the base's."""
        plain = replace(update, extra=without_judging(update.extra))
        return unusable_votes(update) or self.base.unusable(_of_base(state), plain)

    def local_term(self, task: ClientTask) -> LocalTerm | None:
        """The base's."""
        return self.base.local_term(task)

    def aggregate(self, updates: list[ClientUpdate]) -> Weights:
        """The base's."""
        return self.base.aggregate(updates)

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """The base's rule, then the refinery; `feedback` says what the next clients receive, `answer` who answers."""
        verdict = Verdict.after(state.memory.get(_VERDICT, []), updates, self.refinery.answer)
        updates = [replace(update, extra=without_judging(update.extra)) for update in updates]
        after, base_report = self.base.finish_round(_of_base(state), updates, aggregated, bench)
        own_loss = self._loss_of_halfway(bench.classes) if (told := mean_loss(updates)) is None else told
        window = self.refinery.loss_window
        local_loss = loss_before(state.memory.get(_LOSSES, []), bench.classes) if window > 0 else own_loss
        with forked(self.seed, "distillation dropout", state.round):
            refined = refine(
                bench.model,
                initial=state.weights,
                local=[update.weights for update in updates],
                aggregated=after.answer,
                inputs=bench.inputs,
                local_loss=local_loss,
                settings=self.refinery_of(state.round),
                read=bench.read,
                generator=torch_generator(self.seed, "distillation", state.round),
                clustering=state.round >= self.refinery.cluster_warmup,
                std_rows=self.refinery.std_batches * self.settings.train.batch_size * (bench.positions or 1),
                previous_targets=state.memory.get(_TARGETS),
                previous_shares=state.memory.get(_SHARES),
                known_logits=teachers_read(bench, updates, self.refinery, self.settings.train.batch_size),
                initial_logits=bench.remembered(state.weights),
                distil=bench.distil,
            )
        if self.refinery.refine_steps > 0:
            relative = relative_loss(local_loss, bench.classes)
            start = next_start(self.refinery.feedback, refined, after.weights, relative, verdict, self.base)
            base = after.answer
            bench.remember(base, refined.aggregated_logits)
            after = replace(after, weights=start, answer=between(refined.weights, base, verdict.refined_share))
            if self.judging:
                kept = kept_candidates(after, base, refined.weights)
                kept |= summons(self.witnesses, state.memory, own_loss, bench.classes)
                if self.refinery.estimate_classes == "server":
                    kept[CLASSES] = named_shares(refined.targets).cpu()
                after = replace(after, memory={**after.memory, **kept, _VERDICT: verdict.rounds})
        if self.refinery.target_smoothing > 0:
            after = replace(after, memory={**after.memory, _TARGETS: refined.targets})
        if refined.shares is not None:
            after = replace(after, memory={**after.memory, _SHARES: refined.shares.cpu()})
        if window > 0:
            losses = [*state.memory.get(_LOSSES, []), own_loss][-window:]
            after = replace(after, memory={**after.memory, _LOSSES: losses})
        predicted = {"aggregated": refined.aggregated_logits, "ensemble": refined.ensemble, "targets": refined.targets}
        if verdict.refined_share < 1:
            # The answer is scored anyway; what was refined is worth a curve too.
            predicted["refined"] = bench.logits(refined.weights)
        estimate = {**verdict.estimate(self.kept_back > 0), **verdict.comparison()} if self.judging else {}
        return after, RoundReport(
            metrics={**base_report.metrics, "local_weight": refined.local_weight, **estimate, **bench.new_steps()},
            predictions={**base_report.predictions, **predicted},
            votes=refined.votes,
        )

    def early_state(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> ServerState | None:
        """The base's, where nothing of the refinery goes to the clients."""
        if not base_knows_the_start(self.refinery, self.base):
            return None
        return self.base.finish_round(_of_base(state), updates, aggregated, bench)[0]

    def answer_logits(self, state: ServerState, bench: ServerBench) -> Tensor:
        """The answering model's, or what its samples' neighbours make of it (`answer: propagated`)."""
        if self.refinery.answer != "propagated":
            return super().answer_logits(state, bench)
        bench.model.load_state_dict(state.answer)
        logits, features = bench.read(bench.model, True)
        corrected = propagated(logits.softmax(dim=1), cast(Tensor, features))
        return corrected.clamp_min(LEAST_PROBABILITY).log()

    def skipped_round(self, state: ServerState) -> ServerState:
        """The base's; what the refinery keeps stays."""
        after = self.base.skipped_round(_of_base(state))
        own = {name: value for name, value in state.memory.items() if name.startswith(REFINERY)}
        return replace(after, memory={**after.memory, **own})

    def refinery_of(self, round_index: int) -> MrTFSettings:
        """The switches in round t, whose refining rate is refine_lr * refine_lr_decay^t."""
        rate = rate_of_round(self.refinery.refine_lr, self.refinery.refine_lr_decay, round_index)
        return replace(self.refinery, refine_lr=rate)

    def _is_given(self, key: str) -> bool:
        """Whether the user has set this key of ours; a key that only others read does not count."""
        return hasattr(self.own, key) and key in self.settings.given.get(self.section, {})

    def _base(self, settings: RunSettings) -> Algorithm:
        base = algorithm_named(self.refinery.base, f"{self.section}.base")
        if issubclass(base, MrTF):
            raise UserError(
                f"{self.section}.base is {self.refinery.base!r}, which refines already; name what the refinery is to "
                "stand on, such as FedAvg or Scaffold"
            )
        return base(settings)

    def _loss_of_halfway(self, classes: int) -> float:
        """What stands in for the mean local loss where no client reports one."""
        if not self._warned_of_no_loss:
            self._warned_of_no_loss = True
            _log.warning(
                "no client reports its training loss; u_t and adaptive feedback take it as half of log C "
                "(a trainer of ours reports it)"
            )
        return UNREPORTED_RELATIVE_LOSS * math.log(max(classes, 2))


def _of_base(state: ServerState) -> ServerState:
    """The state as the base left it: the refinery's part of the memory is none of its business."""
    memory: Memory = {name: value for name, value in state.memory.items() if not name.startswith(REFINERY)}
    return replace(state, memory=memory)
