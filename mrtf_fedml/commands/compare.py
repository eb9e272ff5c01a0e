"""`mrtf compare`: several algorithms on one setup, over several seeds, as one table."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path

from ..config import RunSettings
from ..config.schema import Config
from ..config.secrets import redact_arguments
from ..data import load
from ..data.holdout import reject_holdout
from ..errors import UserError
from ..experiments.plan import ABLATION, Trial, import_algorithms, plan_trials
from ..experiments.runner import ComparisonProgress, Runner, default_jobs
from ..experiments.scores import score_trials
from ..training.run_directory import RunDirectory
from .configuration import load_configuration

#: The default of `--algorithms`.
DEFAULT_ALGORITHMS = (
    *("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF"),
    *("FedBE", "FedAUX", "UWA", "SHOT", "LAME"),
    *("MrTF:paper", "MrTF:tuned"),
)


def main(options: argparse.Namespace) -> int:
    """Run the trials that are not done, and write the table, the figures and the page."""
    if options.ablation and options.algorithms:
        raise UserError("--ablation compares its own bars, from PA to ST+RD+CLR; leave --algorithms out")
    if options.target is not None and not 0 < options.target <= 1:
        raise UserError(f"--target is {options.target:g}; give an accuracy between 0 and 1, such as 0.8")
    labels = list(ABLATION) if options.ablation else _parse_algorithms(options.algorithms)
    if not options.ablation:
        # Before the changes: `--set` may name a key of a user's algorithm.
        import_algorithms(labels)
    config = _configuration(options)
    trials = plan_trials(config, labels, options.seeds, options.grid, options.ablation, options.vary)
    folder = Path(options.out) if options.out else Path("comparisons") / Path(options.cf).stem
    progress = ComparisonProgress()
    runner = Runner(folder, default_jobs(trials) if options.jobs is None else options.jobs, progress)
    pending = len({trial.key for trial in trials if not runner.is_done(trial)})
    progress.print_line(f"{len({trial.key for trial in trials})} runs, {pending} of them to be done, in {folder}")
    runner.run_all(trials)
    print(_write_results(options, config, trials, runner, folder))
    return 0


def _configuration(options: argparse.Namespace) -> Config:
    """The configuration, with labels to score by: the server's own, or those of a holdout."""
    changes = [*options.set, *([] if options.holdout is None else [f"data_args.holdout={options.holdout}"])]
    config = load_configuration(options.cf, changes)
    settings = RunSettings.from_config(config)
    if settings.data.holdout is not None:
        if settings.common.training_type != "simulation":
            reject_holdout(settings)
    elif settings.data.is_user_data or settings.data.server_dataset is not None:
        # Before anything is trained: a comparison without accuracies would fail only hours later.
        common = dataclasses.replace(settings.common, training_type="simulation")
        if load(dataclasses.replace(settings, common=common)).evaluator is None:
            raise UserError(
                "a comparison needs accuracies, but the server's set has no labels. Add `--holdout 0.2`: it holds out "
                "a fifth of each client's labelled samples and compares on those; or give the server's labels"
            )
    return config


def _parse_algorithms(words: str | None) -> list[str]:
    names = [word.strip() for word in (words or ",".join(DEFAULT_ALGORITHMS)).split(",") if word.strip()]
    if not names:
        raise UserError(f"--algorithms is empty; try --algorithms {','.join(DEFAULT_ALGORITHMS)}")
    return names


def _command(words: list[str]) -> str:
    """The typed command, for the page; only `mrtf compare` where a program called us."""
    return shlex.join(["mrtf", *redact_arguments(words)]) if words[:1] == ["compare"] else "mrtf compare"


def _write_results(
    options: argparse.Namespace, config: Config, trials: list[Trial], runner: Runner, folder: Path
) -> str:
    """Write all files of the comparison and return the text for the terminal."""
    from ..callbacks.holdout import HOLDOUT_FILE
    from ..experiments import figures, report
    from ..report.elements import table as page_table

    scores = score_trials(trials, lambda trial: RunDirectory(runner.run_dir(trial)).read_metrics(), options.target)
    table, notes = report.table_cells(scores, options.target), report.table_notes(scores, options.target)
    data = RunSettings.from_config(config).data
    title = f"Ablation of MrTF on {data.title}" if options.ablation else f"{len(scores)} algorithms on {data.title}"
    charts = {"Accuracy over rounds": figures.curves_chart(scores)}
    if data.holdout is not None:
        best = max(scores, key=lambda score: score.final.mean)
        of_best = [trial for trial in trials if (trial.label, trial.point) == (best.label, best.point)]
        holdouts = [RunDirectory(runner.run_dir(trial)).read_json(HOLDOUT_FILE) for trial in of_best]
        notes = [*report.holdout_notes(holdouts, data.holdout), *notes]
        shares = report.class_share_table(holdouts)
        title = f"{title}, on a holdout"
        charts[f"Classes predicted by {best.label}"] = page_table(shares[1:], shares[0], "Class shares")
    directory = RunDirectory(folder)
    (folder / "curves.png").write_bytes(figures.draw_curves(scores, title))
    if options.ablation:
        charts["Final accuracy by module"] = figures.bars_chart(scores)
        (folder / "bars.png").write_bytes(figures.draw_bars(scores, title))
    directory.write_text("table.csv", report.format_csv(scores, options.target))
    directory.write_text("table.md", report.format_markdown(table) + "\n" + "\n".join(notes) + "\n")
    page = report.comparison_page(title, table, notes, charts, _command(sys.argv[1:]), config)
    directory.write_text("comparison.html", page)
    return "\n".join(["", report.format_text(table), "", *notes, f"The page is {folder / 'comparison.html'}"])
