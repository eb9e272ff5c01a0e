"""Experiments that compare federated runs: their panels, and the runs, each done once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mrtf_fedml.config.loader import apply_overrides
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.plan import ABLATION, Trial, plan_trials
from mrtf_fedml.experiments.runner import Runner
from mrtf_fedml.experiments.scores import AlgorithmScore, Metrics, score_trials
from mrtf_fedml.report.run_data import EVALUATION_FILE
from mrtf_fedml.training.run_directory import RunDirectory

from .datasets import DATASETS
from .experiment import Budget, ClaimCheck, Number, Outcome, Parameters, Request, Workload, configuration

#: The authors' program, as `--preset released` shows it, and its class.
RELEASED, RELEASED_ALGORITHM = "MrTF:released", "benchmarks.paper.released:ReleasedMrTF"
#: The paper's MrTF; here it is one algorithm per preset.
MRTF = "MrTF"
#: Samples per refinement step.
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
class PanelResult:
    """A panel whose runs are done.

    Attributes:
        panel: the panel.
        row: the name of its row, with a note on a stand-in.
        column: the name of its column, with the note where the row has none.
        rows: the score of each algorithm, by label.
        metrics: the metrics of each label's runs, one per seed.
        learning_threshold: the accuracy from which a model has learnt something.
    """

    panel: Panel
    row: str
    column: str
    rows: dict[str, AlgorithmScore]
    metrics: dict[str, list[Metrics]]
    learning_threshold: float = 0.2

    @property
    def has_learnt(self) -> bool:
        """Whether any algorithm has learnt something; otherwise a ranking is meaningless."""
        return max(row.best.mean for row in self.rows.values()) >= self.learning_threshold


#: Draws the panels.
Draw = Callable[[Sequence[PanelResult]], Any]
#: Checks the paper's claims, for each preset.
CheckClaims = Callable[[Sequence[PanelResult], Sequence[str]], list[ClaimCheck]]


@dataclass(frozen=True)
class Comparison:
    """The panels and algorithms of an experiment, with its drawing and its claims."""

    panels: tuple[Panel, ...]
    algorithms: tuple[str, ...]
    draw: Draw
    check_claims: CheckClaims
    ablation: bool = False
    seeds: int = 1

    def run(self, experiment: str, request: Request) -> Outcome:
        """Run the trials that are not done, and evaluate them."""
        panels = [panel for panel in self.panels if not request.panels or panel.title in request.panels]
        trials_of = {panel.title: self._trials(panel, request) for panel in panels}
        all_trials = [trial for trials in trials_of.values() for trial in trials]
        titles = {trial.key: title for title, trials in trials_of.items() for trial in trials}
        runner = Runner(request.out, request.jobs, request.progress, titles)
        pending = len({trial.key for trial in all_trials if not runner.is_done(trial)})
        number = len({trial.key for trial in all_trials})
        request.progress.print_line(f"{experiment}: {number} runs, {pending} of them to be done, in {runner.folder}")
        runner.run_all(all_trials)
        results = [self._evaluate(panel, trials_of[panel.title], runner, request) for panel in panels]
        same = _same_domain_note(panels, request)
        seconds = {trial.key: _seconds(read_metrics(runner, trial)) for trial in all_trials}
        return Outcome(
            self.draw(results),
            [number for result in results for number in self._numbers(result)],
            [replace(check, holds=None) if same else check for check in self.check_claims(results, request.presets)],
            sum(seconds.values()),
            self._notes(request) + [same] * bool(same),
        )

    def cost(self, budget: Budget) -> list[Workload]:
        """The workloads of one seed and one preset."""
        workloads = []
        for panel in self.panels:
            dataset = DATASETS[panel.parameters.dataset]
            own = budget.apply(panel.parameters)
            # The full size is a tenth of LEAF's users; a run uses at least a fiftieth of all.
            share = max(0.2, budget.share) if panel.parameters.split.method == "user" else budget.share
            each = budget.scale_client(dataset.samples // panel.parameters.clients)
            server = max(budget.minimum("server"), dataset.server_samples * share)
            for algorithm in self.algorithms:
                refines = algorithm not in ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "PA")
                trained = own.chosen * each * own.epochs + (own.refine_steps * REFINE_BATCH if refines else 0)
                readings = 1 + (own.chosen + 2 if refines else 0)
                model = own.model or dataset.model
                workloads.append(Workload(dataset.name, model, own.rounds * trained, own.rounds * readings * server))
        return workloads

    def labels(self, presets: Sequence[str]) -> list[str]:
        """The labels of the algorithms, as in `mrtf compare`."""
        if self.ablation:
            return [*ABLATION, *(f"{MRTF}:{preset}" for preset in presets if preset != "paper")]
        labels: list[str] = []
        for name in self.algorithms:
            labels += [f"{MRTF}:{preset}" for preset in presets] if name == MRTF else [name]
        return labels

    def _trials(self, panel: Panel, request: Request) -> list[Trial]:
        parameters = panel.parameters
        data = request.data(parameters.dataset)
        server = request.data(parameters.server_dataset) if parameters.server_dataset else None
        config = configuration(parameters, request.budget, data, server)
        config = apply_overrides(config, request.changes)
        rates = ",".join(f"{rate:g}" for rate in data.dataset.rates)
        grid = [f"learning_rate={rates}"] if request.grid else []
        bars = [label for label in self.labels(request.presets) if label in ABLATION and self.ablation]
        others = [label for label in self.labels(request.presets) if label not in bars]
        trials = plan_trials(config, bars, request.seeds, grid, ablation=True) if bars else []
        named = {RELEASED_ALGORITHM if label == RELEASED else label: label for label in others}
        trials += plan_trials(config, list(named), request.seeds, grid) if named else []
        return [replace(trial, label=named.get(trial.label, trial.label)) for trial in trials]

    def _evaluate(self, panel: Panel, trials: list[Trial], runner: Runner, request: Request) -> PanelResult:
        rows = score_trials(trials, lambda trial: read_metrics(runner, trial), None)
        runs = {row.label: [t for t in trials if (t.label, t.point) == (row.label, row.point)] for row in rows}
        row, column = panel.row, panel.column
        if any(request.data(name).stand_in for name in panel.datasets):
            by_row = row.startswith(DATASETS[panel.parameters.dataset].title)
            row, column = (f"{row}\n(stand-in)", column) if by_row else (row, f"{column}\n(stand-in)")
        return PanelResult(
            panel,
            row,
            column,
            {row.label: row for row in rows},
            {label: [read_metrics(runner, trial) for trial in own] for label, own in runs.items()},
            learning_threshold(runner.run_dir(trials[0])),
        )

    def _numbers(self, result: PanelResult) -> list[Number]:
        numbers = []
        for label, row in result.rows.items():
            name, _, preset = label.partition(":")
            what = f"{result.panel.title}, {name}"
            numbers.append(Number(what, 100 * row.final.mean, preset or ("paper" if self.ablation else ""), 2))
        return numbers

    def _notes(self, request: Request) -> list[str]:
        notes = ["Numbers are accuracies after the last round in percent" + _seeds_note(request.seeds)]
        if request.grid:
            notes.append("Each algorithm's best learning rate by final accuracy chosen by labels as in the paper")
        else:
            notes.append("One learning rate; where the paper tries several the middle one, and --grid tries them all")
        return notes


def read_metrics(runner: Runner, trial: Trial) -> Metrics:
    """The metrics of a run, one dictionary per round."""
    return RunDirectory(runner.run_dir(trial)).read_metrics()


def learning_threshold(run_dir: Path) -> float:
    """The accuracy on the server's set that a model cannot reach without learning.

    The maximum of: twice uniform guessing; 1.25 times always predicting the most frequent class; guessing plus three
    standard errors, which counts where the server has few samples.
    """
    confusion = json.loads((run_dir / EVALUATION_FILE).read_text())["confusion"]
    counts = [sum(row) for row in confusion]
    samples, guess = sum(counts), 1 / len(counts)
    three_errors = guess + 3 * math.sqrt(guess * (1 - guess) / samples)
    return max(2 * guess, 1.25 * max(counts) / samples, three_errors)


def display_name(label: str) -> str:
    """An algorithm's name in a figure.

    >>> display_name("MrTF:tuned"), display_name("FedAvg")
    ('MrTF (tuned)', 'FedAvg')
    """
    name, colon, preset = label.partition(":")
    return f"{name} ({preset})" if colon else name


def is_best(result: PanelResult, label: str, others: Sequence[str], measure: Callable[[AlgorithmScore], float]) -> bool:
    """Whether the algorithm is better than all others by that measure."""
    if label not in result.rows:
        raise UserError(f"{label} was not run")
    rivals = [result.rows[other] for other in others if other in result.rows and other != label]
    return all(measure(result.rows[label]) > measure(rival) for rival in rivals)


def _same_domain_note(panels: Sequence[Panel], request: Request) -> str:
    """A note where one stand-in replaces both the clients' domain and the server's; otherwise empty."""
    pairs = [panel.datasets for panel in panels if len(panel.datasets) == 2]
    if not any(request.data(clients).args == request.data(server).args for clients, server in pairs):
        return ""
    return "Clients and server have the same stand-in: no domain is crossed; --stand-in NAME=DATA gives each its own"


def _seconds(metrics: Metrics) -> float:
    return sum((line.get("client_seconds") or 0.0) + (line.get("server_seconds") or 0.0) for line in metrics)


def _seeds_note(seeds: int) -> str:
    return f", mean over {seeds} seeds" if seeds > 1 else ", of one seed: small differences may be chance"
