"""A run about to start: the server's set is bound, the run's folder is opened, the callbacks are put in order."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

import torch

from ..data import Examiner, TransductiveDataset, from_fedml
from ..data.neighbours import Nearness, nearness
from ..data.statistics import known_counts, known_samples
from ..errors import UserError
from ..models.positions import ids_of_rows
from ..models.weights import load, refuse_misfit
from ..privacy.budget import PrivacyBudget
from ..report.writer import ReportWriter
from ..rounds.account import PrivacyAccount
from ..rounds.ahead import Begin
from ..rounds.callbacks import Callback, named_callbacks
from ..rounds.ending import ending
from ..rounds.inputs import INPUTS, SAMPLES, file_stamps, refuse_another_set, warn_of_changes
from ..rounds.lock import FolderLock
from ..rounds.loop import Ask, Choose, Run
from ..rounds.missed_classes import found_of_classes
from ..rounds.profile import Profile
from ..rounds.progress import Progress
from ..rounds.recorder import Recorder
from ..rounds.rehearsal import Rehearsal
from ..rounds.round import Handout, Reply
from ..rounds.scores import Scores
from ..rounds.store import RunStore
from ..rounds.watch import Watch
from .arguments import resolved_config
from .server_side import AlgorithmAggregator
from .tracking import trackers

_log = logging.getLogger(__name__)


class Session:
    """The server's side of a run in FedML, whichever backend moves the messages."""

    def __init__(self, args: Any, device: torch.device, dataset: Any, aggregator: AlgorithmAggregator) -> None:
        self.args = args
        self.aggregator = aggregator
        self.server = aggregator.server
        self.dataset: TransductiveDataset = from_fedml(dataset)
        aggregator.bind_server_set(self.dataset.server_inputs, self.dataset.class_num, device)
        if self.server.bench.inputs.device.type == "cpu":
            # A convolutional net has laid out a copy of its own: two would be one too many of a large set.
            self.dataset.hold_server_inputs(self.server.bench.inputs)
        ids = ids_of_rows(self.dataset.ids, self.server.bench.positions)
        examiner = _examiner_of(self.dataset, len(ids))
        added = named_callbacks(self.server.settings.common.callbacks)
        self.store = self._open_store()
        args.mrtf_run_dir = str(self.store.path)
        self.run = Run(
            self.server,
            self.store,
            Scores(examiner, len(ids), self.dataset.class_names),
            self._callbacks(ids, examiner, added),
            aggregator.filters,
        )
        _log.info("the run writes to %s", self.store.path)

    def play(self, ask: Ask, choose: Choose | None = None, begin: Begin | None = None) -> None:
        """All rounds that are left; afterwards the user's model holds the answer."""

        def asked(handout: Handout) -> list[Reply]:
            # FedML's attacks, defences and privacy read the round from there.
            self.args.round_idx = handout.round
            return list(ask(handout))

        try:
            self.run.play(asked, choose, begin)
        finally:
            self.lock.release()
        self.aggregator.set_model_params(self.server.state.answer)
        if not getattr(self.args, "mrtf_launched", False):
            # A project of FedML's own sees the ending that `mrtf run` shows; its log is FedML's.
            print(ending(self.store), flush=True)

    def _callbacks(self, ids: list[str], examiner: Examiner | None, added: list[Callback]) -> list[Callback]:
        """Those that add to a line, then the user's, then what writes it down, then what shows it."""
        return [
            *([Profile()] if getattr(self.args, "mrtf_profile", False) else []),
            PrivacyAccount(PrivacyBudget(self.server.settings)),
            *added,
            *self._rehearsal(),
            Watch(
                self.dataset.class_names,
                known_counts(self.dataset, self.server.settings),
                self._nearness,
                self._found_of_classes,
            ),
            Recorder(ids, self.dataset.class_names, self.dataset.preprocessing),
            Progress(getattr(self.args, "mrtf_progress", None)),
            *trackers(self.args),
            ReportWriter(self.dataset, examiner),
        ]

    @cached_property
    def _known(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        return known_samples(self.dataset, self.server.settings)

    def _nearness(self, given: torch.Tensor) -> Nearness | None:
        return None if self._known is None else nearness(*self._known, self.dataset.server_inputs, given)

    def _found_of_classes(self) -> torch.Tensor | None:
        inputs, labels = self._known or (None, None)
        if inputs is None or labels is None:
            return None
        model = self.server.bench.model
        load(model, self.server.state.answer)
        return found_of_classes(model, inputs, labels, self.dataset.class_num)

    def _rehearsal(self) -> list[Callback]:
        real = self.dataset.real_inputs
        return [] if real is None else [Rehearsal(self.dataset, real)]

    def _open_store(self) -> RunStore:
        settings, algorithm = self.server.settings, self.server.algorithm
        resume, config = getattr(self.args, "mrtf_resume", None), resolved_config(self.args, algorithm)
        if resume is None:
            store = RunStore.create(settings.common.run_dir, f"{settings.data.title}-{algorithm.name}")
            self.lock = FolderLock(store.path)
            stamps = file_stamps(settings.data.located())
            store.write_json(INPUTS, {**stamps, SAMPLES: len(self.dataset.server_inputs)})
            store.note_where_it_began()
            store.write_config(config)
            return store
        store = RunStore.open(resume)
        self.lock = FolderLock(store.path)
        refuse_another_set(store.read_json(INPUTS), len(self.dataset.server_inputs))
        state, rounds = store.load_state(), settings.train.comm_round
        if state is not None:
            # Killed after its last round, a run still owes its answer.
            if state.round > rounds:
                raise UserError(
                    f"the run in {resume!r} has done {state.round} rounds already, more than comm_round {rounds}; ask "
                    f"for more than {state.round} to go on"
                )
            if state.round >= rounds and store.answered_rounds() == state.round:
                raise UserError(f"the run in {resume!r} has done all its {rounds} rounds; raise comm_round to go on")
            refuse_misfit(f"the state of the run in {resume!r}", state.weights, self.server.state.weights)
            self.server.state = state
        warn_of_changes(store.read_json(INPUTS), file_stamps(settings.data.located()))
        store.write_resumed_config(config, self.server.state.round)
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
