"""The training loop: all rounds of a run, whichever backend moves the messages."""

from __future__ import annotations

import logging
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from ..algorithms import Algorithm, ClientUpdate, ServerContext, ServerState
from ..algorithms.evaluation import EvaluationCounts
from ..callbacks.base import Callback
from ..config import RunSettings
from ..data.known_labels import KnownLabels
from ..errors import RunInterrupted, RunStopped, WriteError
from .evaluation import Evaluation
from .outputs import LabelTrust
from .round import AggregationHooks, Backend, RoundRecord, RoundReplies, collect_evaluations, run_round
from .run_directory import RunDirectory, has_used_update
from .server import Server

_log = logging.getLogger(__name__)

_DEFERRED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Run:
    """A run in progress, as callbacks see it."""

    def __init__(
        self,
        server: Server,
        directory: RunDirectory,
        evaluation: Evaluation,
        callbacks: Sequence[Callback] = (),
        hooks: AggregationHooks | None = None,
        known_labels: KnownLabels | None = None,
    ) -> None:
        self.server = server
        #: Labels that the server has of some of its samples; None if of none.
        self.known_labels = known_labels
        self.directory = directory
        self.callbacks = list(callbacks)
        #: Why a callback asked the run to stop; None while none has.
        self.stop_reason: str | None = None
        #: The last finished round; None before the first one of this process, unless an earlier process of the run was
        #: killed after the run's last round. No label is in it.
        self.record: RoundRecord | None = None
        #: After the last round, what each client reports about the model that predicts; empty where none does.
        self.evaluations: dict[int, EvaluationCounts] = {}
        #: How far each label can be trusted, once it is known.
        self.label_trust: LabelTrust | None = None
        self._evaluation = evaluation
        self._hooks = hooks or AggregationHooks()
        self._cached_logits: tuple[ServerState, Tensor] | None = None
        self._logits_before_labels: Tensor | None = None

    @property
    def settings(self) -> RunSettings:
        """The run's settings."""
        return self.server.settings

    @property
    def algorithm(self) -> Algorithm:
        """The run's algorithm."""
        return self.server.algorithm

    @property
    def state(self) -> ServerState:
        """After the last finished round."""
        return self.server.state

    @property
    def context(self) -> ServerContext:
        """The server's inputs, and a model to evaluate on them."""
        return self.server.context

    @property
    def rounds(self) -> int:
        """How many rounds the run shall have."""
        return self.server.settings.train.comm_round

    @property
    def rounds_left(self) -> int:
        """0 if a run was killed after its last round and only its results are to be written."""
        return max(0, self.rounds - self.server.state.round)

    @property
    def is_last_round(self) -> bool:
        """At the end of a round: whether no other one follows."""
        return self.rounds_left == 0 or self.stop_reason is not None

    @property
    def needs_clients(self) -> bool:
        """Whether rounds are left, or an evaluation by the clients that has not been saved."""
        if self.rounds_left:
            return True
        return (
            self._read_evaluations() is None and self.algorithm.evaluation_state(self.state, self.context) is not None
        )

    def prediction_logits(self) -> Tensor:
        """The predictions for the server's samples, [M, C]; computed once per state."""
        state = self.server.state
        if self._cached_logits is None or self._cached_logits[0] is not state:
            self._cached_logits = state, self.algorithm.prediction_logits(state, self.server.context)
        return self._cached_logits[1]

    def logits_before_labels(self) -> Tensor:
        """The predictions, [M, C], of the model that has not learnt the known labels."""
        return self.prediction_logits() if self._logits_before_labels is None else self._logits_before_labels

    def final_logits(self) -> Tensor:
        """The logits of the result, [M, C]: the predictions, and probability 1 for a known label."""
        logits = self.prediction_logits()
        if self.known_labels is None:
            return logits
        is_known = self.known_labels.is_known.to(logits.device)
        return torch.where(is_known[:, None], self.known_labels.anchor(logits).log(), logits)

    def stop(self, reason: str) -> None:
        """End after the current round, with predictions and a report."""
        self.stop_reason = self.stop_reason or reason

    def begin_round(self, clients: Sequence[int]) -> None:
        """Tell the callbacks that tasks of the current round are about to be sent to these clients."""
        for callback in self.callbacks:
            callback.on_round_begin(self, clients)

    def execute(self, backend: Backend) -> dict[str, Any] | None:
        """All rounds that are left. Results of the finished rounds are written also if the run is interrupted.

        Returns:
            the summary; None if not a single round was finished.
        """
        self.record = self._load_last_round()
        try:
            for callback in self.callbacks:
                callback.on_start(self)
            # A run that is to stop before its first round does that one: without it there are no predictions.
            while self.rounds_left and (self.stop_reason is None or self.server.state.round == 0):
                self.server.state, self.record = run_round(self.server, backend, self._hooks, self.begin_round)
                if self.record.report.stop_reason is not None:
                    self.stop(self.record.report.stop_reason)
                line = self._evaluation.round_metrics(self, self.record)
                with defer_signals():
                    for callback in self.callbacks:
                        callback.on_round_end(self, line)
            self._learn_known_labels()
            self._evaluate_with_clients(backend)
        except WriteError as error:
            raise WriteError(self._with_resume_command(error)) from error
        except (KeyboardInterrupt, RunStopped) as interruption:
            _log.warning("interrupted after %d rounds; writing the results of these", self.server.state.round)
            self._write_results(interrupted=True)
            if isinstance(interruption, KeyboardInterrupt):
                raise RunInterrupted(self._interruption_message()) from interruption
            raise RunStopped(self._with_resume_command(interruption)) from interruption
        if self.stop_reason is not None:
            _log.info("the run stops after %d rounds: %s", self.server.state.round, self.stop_reason)
        try:
            summary = self._write_results()
        except WriteError as error:
            raise WriteError(self._with_resume_command(error)) from error
        metrics = self.directory.read_metrics()
        if metrics and not any(map(has_used_update, metrics)):
            raise RunStopped(
                f"no round of the run in {self.directory.path} had a usable update, so its predictions are those of an "
                "untrained model; metrics.jsonl has the reason for each client (excluded_clients)"
            )
        return summary

    def _learn_known_labels(self) -> None:
        """The model that predicts learns the known labels; the checkpoint, from which a run resumes, does not."""
        if self.known_labels is not None:
            logits = self._logits_before_labels = self.prediction_logits()
            targets = self.known_labels.anchor(logits.softmax(dim=1))
            self.server.state = self.algorithm.learn_labels(self.state, targets, self.context)

    def _evaluate_with_clients(self, backend: Backend) -> None:
        """One more exchange, unless an earlier process of this run has saved it."""
        saved = self._read_evaluations()
        if saved is None:
            saved = collect_evaluations(self.server, backend)
            if saved:
                self.directory.write_evaluations(self.state.round, saved, self.labels_digest)
        self.evaluations = saved

    def _read_evaluations(self) -> dict[int, EvaluationCounts] | None:
        return self.directory.read_evaluations(self.state.round, self.labels_digest)

    @property
    def labels_digest(self) -> str | None:
        """Identifies the known labels; None without."""
        return None if self.known_labels is None else self.known_labels.digest

    def _write_results(self, interrupted: bool = False) -> dict[str, Any] | None:
        """Predictions, model and summary of the finished rounds; None if there is none."""
        if self.server.state.round == 0:
            return None
        try:
            summary = self._evaluation.summary(self, interrupted)
            for callback in self.callbacks:
                callback.on_end(self, summary)
            if not interrupted:
                self.directory.mark_results_written(self.server.state.round, self.labels_digest)
                self.directory.remove_checkpoints(keep=1 if self.settings.common.keep_state == "last" else 0)
        except KeyboardInterrupt as again:
            raise RunInterrupted(
                f"interrupted while the results were written; {self.server.state.round} of {self.rounds} rounds are "
                f"saved in {self.directory.path}. Resume with: {self._resume_command}"
            ) from again
        return summary

    def _load_last_round(self) -> RoundRecord | None:
        """The clients and the report of the last round, where only the results are to be written; else None."""
        last = self.directory.load_last_round(self.state.round)
        if last is None:
            return None
        clients, report = last
        updates = [ClientUpdate(client, 0, {}, None) for client in clients]
        return RoundRecord(self.server.state.round - 1, RoundReplies(clients, updates), report, server_seconds=0.0)

    @property
    def _resume_command(self) -> str:
        role = " --role server" if self.settings.common.training_type == "cross_silo" else ""
        return f"mrtf run --resume {shlex.quote(str(self.directory.path))}{role}"

    def _with_resume_command(self, error: BaseException) -> str:
        return f"{error}; the finished rounds are saved: resume with `{self._resume_command}`"

    def _interruption_message(self) -> str:
        finished, path = self.server.state.round, self.directory.path
        if finished == 0:
            return f"interrupted before the first round was finished: nothing was saved ({path} can be removed)"
        return (
            f"interrupted after {finished} of {self.rounds} rounds; their predictions, model and report are in {path}. "
            f"Resume with: {self._resume_command}"
        )


@contextmanager
def defer_signals() -> Iterator[None]:
    """Within the block the first SIGINT or SIGTERM waits for its end, so that a finished round is written whole.

    A second signal does not wait. Signals reach the main thread only; in any other thread the block has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _DEFERRED_SIGNALS}
    # An ignored signal, such as SIGINT in a script's background job, stays ignored.
    active = {number: handler for number, handler in handlers.items() if callable(handler)}
    deferred: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        deferred.append(number)
        if len(deferred) > 1:
            active[signal.Signals(number)](number, frame)

    for number in active:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in active.items():
            signal.signal(number, handler)
    if deferred:
        active[signal.Signals(deferred[0])](deferred[0], None)
