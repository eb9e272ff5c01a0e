"""`mrtf compare`: several algorithms on one scene, over several seeds, as one table."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path

from ..data import load
from ..data.rehearsal import refuse_rehearsal
from ..errors import UserError
from ..experiments.jobs import chosen_jobs
from ..experiments.plan import ABLATION, Trial, import_labelled, planned
from ..experiments.progress import ComparisonProgress
from ..experiments.runner import Runner
from ..experiments.scores import rows_of
from ..rounds.store import RunStore
from ..settings import RunSettings
from ..settings.secrets import words_without_secrets
from ..settings.sections import Config
from .configuration import configured

#: What is compared where nothing else is asked for.
ALL = (
    *("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF"),
    *("FedBE", "FedAUX", "UWA", "SHOT", "LAME"),
    *("MrTF:paper", "MrTF:tuned"),
)


def compare(options: argparse.Namespace) -> int:
    """Do the runs that are not done, and write the table, the figures and the page."""
    if options.ablation and options.algorithms:
        raise UserError("--ablation brings its own bars, from PA to ST+RD+CLR; leave --algorithms out")
    if options.target is not None and not 0 < options.target <= 1:
        raise UserError(f"--target is {options.target:g}; an accuracy lies between 0 and 1, such as 0.8")
    labels = list(ABLATION) if options.ablation else _names(options.algorithms)
    if not options.ablation:
        # Before the changes: `--set` may name a key of an algorithm that stands in no file.
        import_labelled(labels)
    config = _scene(options)
    trials = planned(config, labels, options.seeds, options.grid, options.ablation, options.vary)
    folder = Path(options.out) if options.out else Path("comparisons") / Path(options.cf).stem
    progress = ComparisonProgress()
    runner = Runner(folder, chosen_jobs(trials) if options.jobs is None else options.jobs, progress)
    waiting = len({trial.key for trial in trials if not runner.is_done(trial)})
    progress.tell(f"{len({trial.key for trial in trials})} runs, {waiting} of them to be done, in {folder}")
    runner.do(trials)
    print(_written(options, config, trials, runner, folder))
    return 0


def _scene(options: argparse.Namespace) -> Config:
    """The configuration, with labels to compare by: the server's own, or those of a rehearsal."""
    changes = [*options.set, *([] if options.rehearse is None else [f"data_args.rehearse={options.rehearse}"])]
    config = configured(options.cf, changes)
    settings = RunSettings.from_config(config)
    if settings.data.rehearse is not None:
        if settings.common.training_type != "simulation":
            refuse_rehearsal(settings)
    elif settings.data.is_own or settings.data.server_dataset is not None:
        # Before anything trains: a comparison without a single accuracy would be found out hours later.
        scene = dataclasses.replace(settings, common=dataclasses.replace(settings.common, training_type="simulation"))
        if load(scene).examiner is None:
            raise UserError(
                "a comparison needs accuracies, but the server's set has no labels. Add `--rehearse 0.2`: it holds out "
                "a fifth of each client's labelled samples and compares on those; or give the server's labels"
            )
    return config


def _names(words: str | None) -> list[str]:
    names = [word.strip() for word in (words or ",".join(ALL)).split(",") if word.strip()]
    if not names:
        raise UserError(f"--algorithms names none; try --algorithms {','.join(ALL)}")
    return names


def _command(words: list[str]) -> str:
    """What was typed, for the page; where a program called us, only that it was a comparison."""
    return shlex.join(["mrtf", *words_without_secrets(words)]) if words[:1] == ["compare"] else "mrtf compare"


def _written(options: argparse.Namespace, config: Config, trials: list[Trial], runner: Runner, folder: Path) -> str:
    from ..experiments import charts, figures, tables
    from ..experiments.page import comparison_page
    from ..experiments.rehearsal import rehearsal_notes, shares_table
    from ..report.document import table as page_table
    from ..rounds.rehearsal import FILE as REHEARSAL

    rows = rows_of(trials, lambda trial: RunStore(runner.run_dir(trial)).read_metrics(), options.target)
    table, notes = tables.cells(rows, options.target), tables.notes(rows, options.target)
    dataset = RunSettings.from_config(config).data.title
    title = f"Ablation of MrTF on {dataset}" if options.ablation else f"{len(rows)} algorithms on {dataset}"
    drawn = {"Accuracy over rounds": charts.curves(rows)}
    share = RunSettings.from_config(config).data.rehearse
    if share is not None:
        best = max(rows, key=lambda row: row.final.mean)
        seen = [trial for trial in trials if (trial.label, trial.point) == (best.label, best.point)]
        rehearsals = [RunStore(runner.run_dir(trial)).read_json(REHEARSAL) for trial in seen]
        notes = [*rehearsal_notes(rehearsals, share), *notes]
        shares = shares_table(rehearsals)
        title = f"{title}, rehearsed"
        drawn[f"Classes that {best.label} gives"] = page_table(shares[1:], shares[0], "Shares of the classes")
    store = RunStore(folder)
    (folder / "curves.png").write_bytes(figures.curves(rows, title))
    if options.ablation:
        drawn["Final accuracy, module by module"] = charts.bars(rows)
        (folder / "bars.png").write_bytes(figures.bars(rows, title))
    store.write_text("table.csv", tables.as_csv(rows, options.target))
    store.write_text("table.md", tables.as_markdown(table) + "\n" + "\n".join(notes) + "\n")
    command = _command(sys.argv[1:])
    store.write_text("comparison.html", comparison_page(title, table, notes, drawn, command, config))
    return "\n".join(["", tables.as_text(table), "", *notes, f"The page is {folder / 'comparison.html'}"])
