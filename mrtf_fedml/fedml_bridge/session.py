"""The server's side of a run: the server's set, the run directory, the callbacks in order, and the rounds."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..algorithms import Algorithm, importable_name
from ..callbacks.base import Callback, load_callbacks
from ..callbacks.early_stopping import EarlyStopping
from ..callbacks.holdout import HoldoutComparison
from ..callbacks.privacy import PrivacyAccount
from ..callbacks.profiler import Profiler
from ..callbacks.progress import Progress, format_run_summary
from ..callbacks.recorder import Recorder
from ..callbacks.report import ReportWriter
from ..callbacks.status import WAITING_FOR_CLIENTS, StatusFile, StatusWriter
from ..config.presets import record_explicit_keys
from ..config.schema import Config
from ..config.secrets import redact_secrets
from ..data import SealedEvaluator, TransductiveDataset, from_fedml
from ..data.known_labels import attach_labels_file
from ..data.statistics import client_class_counts, sample_client_data
from ..diagnostics.checks import RunChecks, count_recalled
from ..diagnostics.shift import NeighbourStatistics, compare_with_neighbours
from ..errors import UserError
from ..models.outputs import row_ids
from ..models.state_dict import check_state_dict, load_weights
from ..models.weights_file import read_weights
from ..privacy.budget import PrivacyBudget
from ..training.evaluation import Evaluation
from ..training.loop import Run
from ..training.round import Backend
from ..training.run_directory import DirectoryLock, RunDirectory
from .adapters import AlgorithmAggregator
from .runner import RunOptions
from .tracking import trackers

_log = logging.getLogger(__name__)


class Session:
    """The server's side of a run in FedML, whichever backend moves the messages."""

    def __init__(
        self,
        args: Any,
        device: torch.device,
        dataset: Any,
        aggregator: AlgorithmAggregator,
        options: RunOptions | None = None,
    ) -> None:
        self.args = args
        self.options = options or RunOptions()
        self.aggregator = aggregator
        self.server = aggregator.server
        self.dataset: TransductiveDataset = from_fedml(dataset)
        attach_labels_file(self.dataset, self.server.settings.data)
        self._load_initial_weights()
        aggregator.bind_server_set(self.dataset.server_inputs, self.dataset.class_num, device)
        if self.server.context.inputs.device.type == "cpu":
            # A convolutional net has a copy in its own memory layout; the set may be too large for two.
            self.dataset.replace_server_inputs(self.server.context.inputs)
        ids = row_ids(self.dataset.ids, self.server.context.positions)
        if self.dataset.known_labels is not None and self.server.context.positions is not None:
            raise UserError(
                "data_args.labels_file needs one prediction per sample, but the model predicts at several positions of "
                "each; leave it out"
            )
        evaluator = _evaluator_of(self.dataset, len(ids))
        users = [*load_callbacks(self.server.settings.common.callbacks), *self.options.callbacks]
        self.directory = self._open_run_directory()
        settings = self.server.settings
        self.status = StatusFile(
            self.directory.path,
            role="simulation" if settings.common.training_type == "simulation" else "server",
            algorithm=self.server.algorithm.name,
            dataset=settings.data.title,
            rounds=settings.train.comm_round,
            clients=settings.train.client_num_in_total,
            phase=WAITING_FOR_CLIENTS,
        )
        self._page = ExitStack()
        self._page.enter_context(self.options.serve_page(self.directory.path))
        self.run = Run(
            self.server,
            self.directory,
            Evaluation(evaluator, len(ids), self.dataset.class_names),
            self._callbacks(ids, evaluator, users),
            aggregator.hooks,
            self.dataset.known_labels,
        )
        _log.info("run directory: %s", self.directory.path)

    def execute(self, backend: Backend) -> None:
        """Run all rounds that are left; then the user's model has the weights that predict."""
        try:
            with self.status:
                self.run.execute(backend)
        finally:
            self.lock.release()
            self._page.close()
        self.aggregator.set_model_params(self.server.state.prediction_weights)
        if self.options.print_summary:
            print(format_run_summary(self.directory), flush=True)

    def _callbacks(self, ids: list[str], evaluator: SealedEvaluator | None, users: list[Callback]) -> list[Callback]:
        """First those that add to a round's metrics, then the user's, then those that write and show them."""
        patience = self.server.settings.train.early_stopping
        return [
            _RoundIndex(self.args),
            StatusWriter(self.status),
            *([Profiler()] if self.options.profile else []),
            PrivacyAccount(PrivacyBudget(self.server.settings)),
            *users,
            *([] if patience is None else [EarlyStopping(patience)]),
            *self._holdout_comparison(),
            RunChecks(
                self.dataset.class_names,
                client_class_counts(self.dataset, self.server.settings),
                self.dataset.client_names,
                self._compare_with_neighbours,
                self._count_recalled,
            ),
            Recorder(ids, self.dataset.class_names, self.dataset.preprocessing),
            Progress(self.options.progress),
            *trackers(self.args, self.server.settings.tracking),
            ReportWriter(self.dataset, evaluator),
        ]

    @cached_property
    def _client_sample(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        return sample_client_data(self.dataset, self.server.settings)

    def _compare_with_neighbours(self, predicted: torch.Tensor) -> NeighbourStatistics | None:
        if self._client_sample is None:
            return None
        return compare_with_neighbours(*self._client_sample, self.dataset.server_inputs, predicted)

    def _count_recalled(self) -> torch.Tensor | None:
        inputs, labels = self._client_sample or (None, None)
        if inputs is None or labels is None:
            return None
        model = self.server.context.model
        load_weights(model, self.server.state.prediction_weights)
        return count_recalled(model, inputs, labels, self.dataset.class_num)

    def _holdout_comparison(self) -> list[Callback]:
        real = self.dataset.real_inputs
        return [] if real is None else [HoldoutComparison(self.dataset, real)]

    @property
    def _labels_digest(self) -> str | None:
        return None if self.dataset.known_labels is None else self.dataset.known_labels.digest

    def _load_initial_weights(self) -> None:
        """Start from `initial_weights`; a run that continues from a checkpoint has other weights by now."""
        name, resume = self.server.settings.model.initial_weights, self.options.resume
        if name is None or (resume is not None and RunDirectory(resume).has_checkpoint):
            return
        label = f"model_args.initial_weights {name!r}"
        path = Path(os.path.expanduser(name))
        if path.is_dir():
            weights, header = RunDirectory(path).read_model()
            if header["class_names"] != self.dataset.class_names:
                raise UserError(f"{label}: that run has other classes, or the same in another order; use the same data")
        else:
            weights = read_weights(path, "model_args.initial_weights")
        check_state_dict(label, weights, self.server.state.weights, "give weights of the same model")
        self.server.start_from(weights)

    def _open_run_directory(self) -> RunDirectory:
        settings, algorithm = self.server.settings, self.server.algorithm
        resume, config = self.options.resume, _resolved_config(algorithm)
        if resume is None:
            directory = RunDirectory.create(settings.common.run_dir, f"{settings.data.title}-{algorithm.name}")
            self.lock = DirectoryLock(directory.path)
            directory.record_inputs(settings.data.with_absolute_paths(), len(self.dataset.server_inputs))
            directory.record_working_directory()
            directory.write_config(config)
            return directory
        directory = RunDirectory.open(resume)
        self.lock = DirectoryLock(directory.path)
        directory.check_inputs(settings.data.with_absolute_paths(), len(self.dataset.server_inputs))
        if not directory.has_checkpoint and directory.results_written_after() is not None:
            raise UserError(
                f"the run in {resume!r} is finished and has kept no checkpoint (keep_state: none); start a new run, "
                "with initial_weights to begin from its model"
            )
        state, rounds = directory.load_state(), settings.train.comm_round
        if state is not None:
            # A run that was killed after its last round has no results yet.
            if state.round > rounds:
                raise UserError(
                    f"the run in {resume!r} has done {state.round} rounds already, more than comm_round {rounds}; "
                    f"raise comm_round above {state.round} to continue"
                )
            if state.round >= rounds and directory.has_results_of(rounds, self._labels_digest):
                raise UserError(f"the run in {resume!r} has done all its {rounds} rounds; raise comm_round to continue")
            check_state_dict(f"the checkpoint of the run in {resume!r}", state.weights, self.server.state.weights)
            self.server.state = state
        directory.write_resumed_config(config, self.server.state.round)
        return directory


def _resolved_config(algorithm: Algorithm) -> Config:
    """The user's sections with our keys resolved, for the run directory; without secrets."""
    settings = algorithm.settings
    resolved = redact_secrets(settings.explicit)
    for sections in (settings.to_config(), algorithm.sections()):
        for section, values in sections.items():
            resolved.setdefault(section, {}).update(values)
    # A report and a resumed run may be started from another folder.
    for section, located in (
        ("data_args", settings.data.with_absolute_paths()),
        ("model_args", settings.model.with_absolute_paths()),
    ):
        values = resolved[section]
        values.update({key: getattr(located, key) for key in values if hasattr(located, key)})
    # Adapters given by the user win over the setting, and a short name is known only where the class was registered: a
    # resumed run must find the algorithm that ran.
    resolved["train_args"]["federated_optimizer"] = importable_name(type(algorithm), settings.train.federated_optimizer)
    return record_explicit_keys(resolved, settings.explicit)


class _RoundIndex(Callback):
    """Keeps `args.round_idx`, which FedML's attacks, defences and privacy read."""

    def __init__(self, args: Any) -> None:
        self._args = args

    def on_round_begin(self, run: Run, clients: Sequence[int]) -> None:
        """Set the round."""
        self._args.round_idx = run.state.round


def _evaluator_of(dataset: TransductiveDataset, rows: int) -> SealedEvaluator | None:
    """The dataset's evaluator, if it has one label per row of predictions."""
    evaluator = dataset.evaluator
    if evaluator is None:
        return None
    try:
        # A sealed evaluator returns nothing but scores, so that a score is the only way to compare the counts.
        evaluator.score(torch.zeros(rows, dtype=torch.int64))
    except ValueError:
        _log.warning("the model gives %d predictions and the number of labels differs: nothing is evaluated", rows)
        return None
    return evaluator
