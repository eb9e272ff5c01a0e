"""`python benchmarks/paper EXPERIMENT`: run a figure or table of the paper again."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mrtf_fedml.cli import run_command
from mrtf_fedml.config.secrets import redact_arguments
from mrtf_fedml.errors import UserError
from mrtf_fedml.experiments.runner import ComparisonProgress
from mrtf_fedml.process.logs import log_to_terminal
from mrtf_fedml.process.signals import exit_on_next_signal, interrupt_exit_code

from .catalogue import EXPERIMENTS, find_experiment, list_experiments, parse_presets
from .datasets import DataFolder
from .experiment import Budget, Experiment, Request, parse_only, select_panels
from .results import PAGE, format_outcome, write_outcome, write_page

#: How the command is typed.
PROGRAM = "python benchmarks/paper"


def build_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Run a figure or table of the paper again; --list names them."
    )
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT", help="such as logi, compare or dp")
    parser.add_argument("--list", action="store_true", help="all experiments: parameters, data needed, time")
    parser.add_argument("--page", action="store_true", help="one HTML page of all finished experiments")
    parser.add_argument("--preset", metavar="P", default="paper", help="paper (default), another, or all of MrTF's")
    parser.add_argument("--budget", metavar="B", type=float, default=1.0, help="a fraction of the paper's size (1)")
    parser.add_argument("--seeds", metavar="N", type=int, help="seeds 0 to N-1 (1; 3 for logi)")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="concurrent runs; they share the cores (1)")
    parser.add_argument("--data", metavar="DIR", default="~/fedml_data", help="folder of the datasets (~/fedml_data)")
    parser.add_argument("--download", action="store_true", help="download missing data that torchvision can download")
    parser.add_argument(
        "--stand-in",
        metavar="[NAME=]DATA",
        nargs="?",
        const="",
        action="append",
        help="replace missing data by the embedded digits, or by this .npz file or dataset",
    )
    parser.add_argument("--only", metavar="A,B", help="restrict the experiment to some of its datasets")
    parser.add_argument(
        "--panel", metavar="A,B", action="append", default=[], help="only some panels, such as C=3 or mnist,alpha=0.1"
    )
    parser.add_argument("--grid", action="store_true", help="try all learning rates of the paper; labels choose")
    parser.add_argument("--out", metavar="DIR", default="reproductions", help="output folder (reproductions)")
    parser.add_argument(
        "--set",
        metavar="[SECTION.]KEY=VALUE",
        action="append",
        default=[],
        help="change a key of the federated runs' configurations; may be given several times",
    )
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as `mrtf` does."""
    options = build_parser().parse_args(words)
    log_to_terminal(verbose=False)
    return run_command(reproduce, options, "interrupted; finished runs are kept: the same command goes on with them")


def reproduce(options: argparse.Namespace) -> int:
    """Run the experiment, or list all, or write the page of the finished ones."""
    stand_in = list(options.stand_in or [])
    name = options.experiment
    if name is None and stand_in and stand_in[-1] in EXPERIMENTS:
        # `--stand-in EXPERIMENT`: argparse took the experiment for the option's value.
        name, stand_in[-1] = stand_in[-1], ""
    experiment = find_experiment(name) if name is not None else None
    request = _request(options, stand_in, experiment)
    if options.list:
        print(list_experiments(request))
        return 0
    if experiment is None:
        return _page(request, options.page)
    if options.download:
        request.data_folder.download(experiment.required_datasets(request))
    request.data_folder.require(experiment.required_datasets(request), experiment.name)
    _require_writable(request.out)
    return _run(experiment, request)


def _request(options: argparse.Namespace, stand_in: list[str], experiment: Experiment | None) -> Request:
    if options.seeds is not None and options.seeds < 1:
        raise UserError(f"--seeds is {options.seeds}; at least one is needed")
    if options.jobs < 1:
        raise UserError(f"--jobs is {options.jobs}; give at least 1")
    if (options.only or options.panel) and experiment is None:
        raise UserError("--only and --panel select parts of an experiment; name the experiment too")
    if experiment is not None and not experiment.panels and (options.set or options.grid):
        option = "--set" if options.set else "--grid"
        raise UserError(f"{option} is for federated runs, and the experiment {experiment.name} has none; leave it out")
    only = parse_only(options.only, experiment) if experiment else ()
    return Request(
        data_folder=DataFolder(Path(options.data).expanduser(), stand_in),
        out=Path(options.out),
        presets=parse_presets(options.preset),
        budget=Budget(options.budget),
        seeds=options.seeds or (experiment.seeds if experiment else 1),
        jobs=options.jobs,
        only=only,
        panels=select_panels(options.panel, only, experiment) if experiment else (),
        panel_options=options.panel,
        grid=options.grid,
        changes=options.set,
        progress=ComparisonProgress(),
    )


def _page(request: Request, asked: bool) -> int:
    if not asked:
        raise UserError(f"name an experiment: {', '.join(EXPERIMENTS)}; or give --list or --page")
    page = write_page(request.out, EXPERIMENTS)
    if page is None:
        raise UserError(f"no experiment is finished in {str(request.out)!r}; begin with `{PROGRAM} logi --stand-in`")
    print(f"The page is {page}")
    return 0


def _require_writable(out: Path) -> None:
    """Refuse a folder that cannot be written before anything runs: it may take days."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"--out: {str(out)!r} cannot be written ({error.strerror}); name another folder") from None


def _run(experiment: Experiment, request: Request) -> int:
    command = _command(sys.argv[1:], experiment)
    if not experiment.refines and request.presets != ("paper",):
        request.progress.print_line(f"{experiment.name}: no model is refined, so --preset changes nothing")
    try:
        outcome = experiment.run(request)
        folder = write_outcome(experiment, request, outcome, command)
        write_page(request.out, EXPERIMENTS)
    except KeyboardInterrupt as interrupt:
        code = interrupt_exit_code(interrupt)
        exit_on_next_signal(code)
        request.progress.close()
        print(f"mrtf: interrupted; finished parts are kept in {request.out}; continue with: {command}", file=sys.stderr)
        return code
    print(format_outcome(experiment, request, outcome, folder))
    print(f"The page of all finished experiments is {request.out / PAGE}")
    return 0


def _command(words: list[str], experiment: Experiment) -> str:
    """The typed command, to be typed again; where a program called us, the experiment alone."""
    typed = Path(sys.argv[0]).parent.name == "paper"
    return f"{PROGRAM} {shlex.join(redact_arguments(words)) if typed else experiment.name}"
