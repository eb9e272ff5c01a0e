"""A run about to start: the server's set is bound to the aggregator, and the run's folder is opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from ..algorithms.sampling import chosen_clients
from ..data import Examiner, TransductiveDataset, from_fedml
from ..errors import UserError
from ..models.positions import ids_of_rows
from ..report import write_report
from ..runs.progress import Progress
from ..runs.recorder import Recorder
from ..runs.store import RunStore
from .arguments import resolved_config
from .messages import Payload
from .server_side import AlgorithmAggregator
from .tracking import trackers

_log = logging.getLogger(__name__)

#: Has the clients of a round trained, wherever that is: sample counts and messages, in the order of the clients.
ClientsAtWork = Callable[[int, list[int]], list[tuple[int, Payload]]]


class Session:
    """The server's side of a run from its first round to its last, whichever backend moves the messages."""

    def __init__(self, args: Any, device: torch.device, dataset: Any, aggregator: AlgorithmAggregator) -> None:
        self.args = args
        self.aggregator = aggregator
        self.dataset: TransductiveDataset = from_fedml(dataset)
        aggregator.bind_server_set(self.dataset.server_inputs, self.dataset.class_num, device)
        ids = ids_of_rows(self.dataset.ids, aggregator.bench.positions)
        self.examiner = _examiner_of(self.dataset, len(ids))
        self.store = self._open_store()
        args.mrtf_run_dir = str(self.store.path)
        self.progress = Progress(self.rounds, aggregator.state.round, getattr(args, "mrtf_quiet", False))
        aggregator.recorder = Recorder(
            self.store,
            aggregator.settings,
            aggregator.algorithm,
            self.examiner,
            ids,
            self.dataset.class_names,
            watchers=[self.progress.show, *trackers(args)],
        )
        _log.info("the run writes to %s", self.store.path)

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        return self.aggregator.settings.train.comm_round

    def run(self, train_clients: ClientsAtWork) -> None:
        """All rounds that are left; what was finished is written down also when the user stops it."""
        try:
            for round_index in range(self.aggregator.state.round, self.rounds):
                self.run_round(round_index, self._chosen(round_index), train_clients)
        except KeyboardInterrupt:
            _log.warning("interrupted after %d rounds; writing down what was finished", self.aggregator.state.round)
            self.finish(interrupted=True)
            raise
        self.finish()

    def run_round(self, round_index: int, clients: list[int], train_clients: ClientsAtWork) -> None:
        """One round, with the hooks in the order in which FedML's cross-silo server calls them."""
        self.args.round_idx = round_index
        self.aggregator.begin_round(clients)
        entries, _ = self.aggregator.on_before_aggregation(train_clients(round_index, clients))
        aggregated = self.aggregator.aggregate(entries)
        self.aggregator.set_model_params(self.aggregator.on_after_aggregation(aggregated))

    def _chosen(self, round_index: int) -> list[int]:
        settings = self.aggregator.settings
        train, seed = settings.train, settings.common.random_seed
        return chosen_clients(round_index, train.client_num_in_total, train.client_num_per_round, seed)

    def finish(self, interrupted: bool = False) -> dict[str, Any] | None:
        """Write the answer and the report; None where not even one round was done."""
        self.progress.close()
        state, recorder = self.aggregator.state, self.aggregator.recorder
        if recorder is None or state.round == 0:
            return None
        summary = recorder.finish(state, self.aggregator.bench, interrupted)
        write_report(self.store, self.dataset.server_inputs, self.examiner)
        self.aggregator.set_model_params(state.answer)
        return summary

    def _open_store(self) -> RunStore:
        settings, aggregator = self.aggregator.settings, self.aggregator
        resume = getattr(self.args, "mrtf_resume", None)
        if resume is None:
            name = f"{settings.data.dataset}-{aggregator.algorithm.name}"
            store = RunStore.create(settings.common.run_dir, name)
            store.write_config(resolved_config(self.args, settings))
            return store
        store = RunStore.open(resume)
        state = store.load_state()
        if state is not None:
            if state.round >= self.rounds:
                raise UserError(
                    f"the run in {resume!r} has done all its {self.rounds} rounds; raise comm_round to go on"
                )
            aggregator.state = state
        return store


def _examiner_of(dataset: TransductiveDataset, rows: int) -> Examiner | None:
    """The dataset's examiner, if its labels are as many as the model's answers."""
    examiner = dataset.examiner
    if examiner is None:
        return None
    try:
        # An examiner tells nothing but scores, so it is asked for one.
        examiner.score(torch.zeros(rows, dtype=torch.int64))
    except ValueError:
        _log.warning("the model gives %d answers, which are not as many as the labels: none will be scored", rows)
        return None
    return examiner
