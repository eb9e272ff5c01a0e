"""`mrtf compare`: several algorithms on one scene, over several seeds, as one table."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from ..errors import UserError
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
    config = configured(options.cf, options.set)
    trials = planned(config, labels, options.seeds, options.grid, options.ablation, options.vary)
    folder = Path(options.out) if options.out else Path("comparisons") / Path(options.cf).stem
    progress = ComparisonProgress()
    runner = Runner(folder, options.jobs, progress)
    waiting = len({trial.key for trial in trials if not runner.is_done(trial)})
    progress.tell(f"{len({trial.key for trial in trials})} runs, {waiting} of them to be done, in {folder}")
    runner.do(trials)
    print(_written(options, config, trials, runner, folder))
    return 0


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

    rows = rows_of(trials, lambda trial: RunStore(runner.run_dir(trial)).read_metrics(), options.target)
    table, notes = tables.cells(rows, options.target), tables.notes(rows, options.target)
    dataset = RunSettings.from_config(config).data.dataset
    title = f"Ablation of MrTF on {dataset}" if options.ablation else f"{len(rows)} algorithms on {dataset}"
    drawn = {"Accuracy over rounds": charts.curves(rows)}
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
