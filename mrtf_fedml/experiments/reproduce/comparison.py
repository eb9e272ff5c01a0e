"""Scenes that compare whole federated runs: their panels, and doing the runs, none of them twice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...report.reading import MARKS
from ...rounds.store import RunStore
from ...settings.yaml_file import with_changes
from ..plan import ABLATION, Trial, planned
from ..runner import Runner
from ..scores import Metrics, Row, rows_of
from .datasets import DATASETS
from .parameters import Budget, Parameters, configuration
from .scene import Number, Outcome, Request, Verdict, Work

#: What the paper's word MrTF is here: one algorithm for each preset.
MRTF = "MrTF"
#: Samples of a step of refining.
REFINE_BATCH = 64


@dataclass(frozen=True)
class Panel:
    """One panel of a figure, or one column of a table: its place, and the run's parameters."""

    row: str
    column: str
    parameters: Parameters

    @property
    def title(self) -> str:
        """Row and column in one line."""
        return ", ".join(part for part in (self.row, self.column) if part)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The clients' and, where it is another, the server's."""
        own = self.parameters
        return (own.dataset, own.server_dataset) if own.server_dataset else (own.dataset,)


@dataclass(frozen=True)
class Done:
    """A panel whose runs are done.

    Attributes:
        panel: which.
        row: its row's name, which tells that other data stand in.
        column: its column's name, which tells so where the row does not.
        rows: what each algorithm reached, by its label.
        metrics: round by round, of each label's runs, a seed each.
        learnt_from: the accuracy from which a model knows something.
    """

    panel: Panel
    row: str
    column: str
    rows: dict[str, Row]
    metrics: dict[str, list[Metrics]]
    learnt_from: float = 0.2

    @property
    def has_learnt(self) -> bool:
        """Whether any algorithm knows something: among those that know nothing none is best."""
        return max(row.best.mean for row in self.rows.values()) >= self.learnt_from


#: Draws the panels.
Draw = Callable[[Sequence[Done]], Any]
#: Judges them, for each preset.
Judge = Callable[[Sequence[Done], Sequence[str]], list[Verdict]]


@dataclass(frozen=True)
class Comparison:
    """A scene's panels and algorithms, how they are drawn and what is asked of them."""

    panels: tuple[Panel, ...]
    algorithms: tuple[str, ...]
    draw: Draw
    judge: Judge
    ablation: bool = False
    seeds: int = 1

    def play(self, scene: str, request: Request) -> Outcome:
        """Do the runs that are not done, and tell what they show."""
        panels = [panel for panel in self.panels if not request.panels or panel.title in request.panels]
        planned_trials = {panel.title: self._trials(panel, request) for panel in panels}
        every = [trial for trials in planned_trials.values() for trial in trials]
        places = {trial.key: title for title, trials in planned_trials.items() for trial in trials}
        runner = Runner(request.out, request.jobs, request.progress, places)
        waiting = len({trial.key for trial in every if not runner.is_done(trial)})
        number = len({trial.key for trial in every})
        request.progress.tell(f"{scene}: {number} runs, {waiting} of them to be done, in {runner.folder}")
        runner.do(every)
        done = [self._done(panel, planned_trials[panel.title], runner, request) for panel in panels]
        same = _same_domain(panels, request)
        seconds = {trial.key: _seconds(read(runner, trial)) for trial in every}
        return Outcome(
            self.draw(done),
            [number for panel in done for number in self._numbers(panel)],
            [replace(verdict, held=None) if same else verdict for verdict in self.judge(done, request.presets)],
            sum(seconds.values()),
            self._notes(request) + [same] * bool(same),
        )

    def cost(self, budget: Budget) -> list[Work]:
        """What one seed of one preset has to compute."""
        works = []
        for panel in self.panels:
            dataset = DATASETS[panel.parameters.dataset]
            own = budget.on(panel.parameters)
            # Of LEAF's users, a tenth of whom is all, a run takes at least a fiftieth.
            share = max(0.2, budget.share) if panel.parameters.split.method == "user" else budget.share
            each = budget.of_client(dataset.samples // panel.parameters.clients)
            server = max(budget.least("server"), dataset.server_samples * share)
            for algorithm in self.algorithms:
                refines = algorithm not in ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "PA")
                trained = own.chosen * each * own.epochs + (own.refine_steps * REFINE_BATCH if refines else 0)
                readings = 1 + (own.chosen + 2 if refines else 0)
                model = own.model or dataset.model
                works.append(Work(dataset.name, model, own.rounds * trained, own.rounds * readings * server))
        return works

    def labels(self, presets: Sequence[str]) -> list[str]:
        """The algorithms as `mrtf compare` names them."""
        if self.ablation:
            return [*ABLATION, *(f"{MRTF}:{preset}" for preset in presets if preset != "paper")]
        labels: list[str] = []
        for name in self.algorithms:
            labels += [f"{MRTF}:{preset}" for preset in presets] if name == MRTF else [name]
        return labels

    def _trials(self, panel: Panel, request: Request) -> list[Trial]:
        asked = panel.parameters
        data = request.data(asked.dataset)
        server = request.data(asked.server_dataset) if asked.server_dataset else None
        config = configuration(asked, request.budget, data, server)
        config = with_changes(config, request.changes)
        rates = ",".join(f"{rate:g}" for rate in data.dataset.rates)
        grid = [f"learning_rate={rates}"] if request.grid else []
        bars = [label for label in self.labels(request.presets) if label in ABLATION and self.ablation]
        others = [label for label in self.labels(request.presets) if label not in bars]
        trials = planned(config, bars, request.seeds, grid, ablation=True) if bars else []
        return trials + (planned(config, others, request.seeds, grid) if others else [])

    def _done(self, panel: Panel, trials: list[Trial], runner: Runner, request: Request) -> Done:
        rows = rows_of(trials, lambda trial: read(runner, trial), None)
        runs = {row.label: [t for t in trials if (t.label, t.point) == (row.label, row.point)] for row in rows}
        row, column = panel.row, panel.column
        if any(request.data(name).stands_in for name in panel.datasets):
            by_row = row.startswith(DATASETS[panel.parameters.dataset].title)
            row, column = (f"{row}\n(stand-in)", column) if by_row else (row, f"{column}\n(stand-in)")
        return Done(
            panel,
            row,
            column,
            {row.label: row for row in rows},
            {label: [read(runner, trial) for trial in own] for label, own in runs.items()},
            learnt_from(runner.run_dir(trials[0])),
        )

    def _numbers(self, done: Done) -> list[Number]:
        numbers = []
        for label, row in done.rows.items():
            name, _, preset = label.partition(":")
            what = f"{done.panel.title}, {name}"
            numbers.append(Number(what, 100 * row.final.mean, preset or ("paper" if self.ablation else ""), 2))
        return numbers

    def _notes(self, request: Request) -> list[str]:
        notes = ["Numbers are accuracies after the last round in percent" + _over(request.seeds)]
        if request.grid:
            notes.append("Each algorithm's best learning rate by final accuracy chosen by labels as in the paper")
        else:
            notes.append("One learning rate; where the paper tries several the middle one, and --grid tries them all")
        return notes


def read(runner: Runner, trial: Trial) -> Metrics:
    """A run's rounds."""
    return RunStore(runner.run_dir(trial)).read_metrics()


def learnt_from(run_dir: Path) -> float:
    """What no model reaches that knows nothing, on the server's set of a run.

    Twice an equal guess; a quarter above naming always the most frequent class; and, where the server has few samples,
    three standard errors above a guess.
    """
    confusion = json.loads((run_dir / MARKS).read_text())["confusion"]
    counts = [sum(row) for row in confusion]
    samples, guess = sum(counts), 1 / len(counts)
    lucky = guess + 3 * math.sqrt(guess * (1 - guess) / samples)
    return max(2 * guess, 1.25 * max(counts) / samples, lucky)


def named(label: str) -> str:
    """An algorithm's name in a figure.

    >>> named("MrTF:tuned"), named("FedAvg")
    ('MrTF (tuned)', 'FedAvg')
    """
    name, colon, preset = label.partition(":")
    return f"{name} ({preset})" if colon else name


def best_of(done: Done, label: str, others: Sequence[str], measure: Callable[[Row], float]) -> bool:
    """Whether the algorithm is better than all others by that measure."""
    if label not in done.rows:
        raise UserError(f"{label} was not run")
    rivals = [done.rows[other] for other in others if other in done.rows and other != label]
    return all(measure(done.rows[label]) > measure(rival) for rival in rivals)


def _same_domain(panels: Sequence[Panel], request: Request) -> str:
    """What to say where one stand-in is both the clients' domain and the server's."""
    pairs = [panel.datasets for panel in panels if len(panel.datasets) == 2]
    if not any(request.data(clients).args == request.data(server).args for clients, server in pairs):
        return ""
    return "Clients and server have the same stand-in: no domain is crossed; --stand-in NAME=DATA gives each its own"


def _seconds(metrics: Metrics) -> float:
    return sum((line.get("seconds_local") or 0.0) + (line.get("seconds_refine") or 0.0) for line in metrics)


def _over(seeds: int) -> str:
    return f", mean over {seeds} seeds" if seeds > 1 else ", of one seed: small differences may be chance"
