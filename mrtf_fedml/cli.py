"""`mrtf`: the command line. It imports nothing heavy, so that `mrtf --help` is fast."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .errors import RunInterrupted, RunStopped, UserError, shorten_repr
from .process.logs import log_to_terminal
from .process.mpi import world_rank
from .process.signals import (
    BROKEN_PIPE_EXIT_CODE,
    exit_on_next_signal,
    interrupt_exit_code,
    raise_on_sigterm,
    stdout_reader_is_gone,
)
from .process.threads import limit_thread_spinning
from .process.tuning import keep_freed_memory, pause_garbage_collector
from .version import __version__

#: Error numbers of a full, closed or broken disk.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
#: The message after an interruption, where the run itself gives none.
_WHEN_INTERRUPTED = {
    "run": "interrupted; nothing was finished",
    "compare": "interrupted; finished runs and rounds are kept: the same command continues with them",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 success, 1 failure, 2 a wrong setting or file, 3 predictions for samples that differ from those of the run, 130
    after Ctrl-C, 143 after SIGTERM, 141 when its reader left.
    """
    parser = build_parser()
    options, unknown = parser.parse_known_args(words)
    if unknown:
        settings = [word for word in unknown if "=" in word and not word.startswith("-")]
        hint = f"; write --set before each setting: --set {settings[0]}" if settings else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if options.command is None:
        parser.print_help()
        return 0
    log_to_terminal(getattr(options, "verbose", False))
    return run_command(_dispatch, options, _WHEN_INTERRUPTED.get(options.command, "interrupted"))


def run_command(command: Callable[[argparse.Namespace], int], options: argparse.Namespace, interrupted: str) -> int:
    """Call the command and return its exit code; an expected error becomes one sentence on stderr.

    Args:
        command: returns the exit code.
        options: its options.
        interrupted: the message after Ctrl-C or SIGTERM, where the run itself gives none.
    """
    limit_thread_spinning()
    keep_freed_memory()
    raise_on_sigterm()
    try:
        code = command(options)
        return BROKEN_PIPE_EXIT_CODE if stdout_reader_is_gone() else code
    except UserError as error:
        _print_once(f"mrtf: {error}")
        return 2
    except RunStopped as error:
        print(f"mrtf: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) and stdout_reader_is_gone():
            return BROKEN_PIPE_EXIT_CODE
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            path = shorten_repr(error.filename)
            _print_once(f"mrtf: {path} is no path that can be opened ({error.strerror}); correct it")
            return 2
        if ".fedml" in str(error.filename):
            _print_once(
                f"mrtf: FedML cannot write {error.filename} ({error.strerror}); set HOME to a folder that can be "
                "written, as in HOME=/tmp/me mrtf run ..."
            )
            return 2
        if error.errno not in _DISK_ERRORS:
            raise
        print(f"mrtf: {error.filename or 'a file'} cannot be written or read ({error.strerror})", file=sys.stderr)
        return 1
    except ImportError as error:
        print(
            f"mrtf: a package cannot be imported ({error}); `mrtf doctor` shows how to repair the installation",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt as interrupt:
        code = interrupt_exit_code(interrupt)
        exit_on_next_signal(code)
        _print_once(f"mrtf: {interrupt if isinstance(interrupt, RunInterrupted) else interrupted}")
        return code


def _dispatch(options: argparse.Namespace) -> int:
    """Import the module of the command and call its `main`."""
    if options.command == "completion":
        from .commands.completion import completion_script

        print(completion_script(build_parser(), options.shell))
        return 0
    if options.command == "run" and "fedml" not in sys.modules:
        # Printed first: the imports take seconds.
        _print_once("loading FedML ...")
    with pause_garbage_collector():
        module = importlib.import_module(f".commands.{options.command}", __package__)
    code: int = module.main(options)
    return code


def _print_once(text: str) -> None:
    """Print to stderr on rank 0 only: all ranks come to the same end."""
    if world_rank() == 0:
        print(text, file=sys.stderr, flush=True)


def build_parser() -> argparse.ArgumentParser:
    """The options of every command; `commands/NAME.py` runs the command NAME."""
    parser = argparse.ArgumentParser(
        prog="mrtf",
        description="Transductive federated learning with MrTF, inside FedML: labels for the server's data from "
        "clients that do not share their own.",
    )
    parser.add_argument("--version", action="version", version=f"mrtf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    run = commands.add_parser("run", help="run a configuration: predictions, model and report in a run directory")
    run.add_argument("--cf", metavar="FILE.yaml", help="the configuration, in FedML's format")
    _add_changes(run)
    run.add_argument("--coverage", metavar="P", help="of the prediction sets (default 0.9)")
    run.add_argument("--accept", metavar="P", help="label only what is right with this probability, abstain otherwise")
    run.add_argument("--resume", metavar="RUN_DIR", help="continue an interrupted run")
    run.add_argument("--role", choices=("server", "client"), help="across silos: the role of this process")
    run.add_argument("--rank", type=int, metavar="R", help="across silos: 0 is the server, R the silo of shard R-1")
    run.add_argument("--profile", action="store_true", help="measure CPU seconds by phase: in the report, and a trace")
    run.add_argument("--watch", action="store_true", help="show the run on a live page on this machine")
    run.add_argument("--verbose", action="store_true", help="show FedML's log")

    predict = commands.add_parser("predict", help="label more data of the same kind with the model of a finished run")
    predict.add_argument("run_dir", metavar="RUN_DIR")
    predict.add_argument(
        "samples", metavar="INPUT", help="an .npz file with x_test, a .csv file, an image or a folder of images"
    )
    predict.add_argument("--out", metavar="FILE.csv", help="the file to write (default ./NAME.predictions.csv)")
    predict.add_argument("--force", action="store_true", help="overwrite a file that exists")
    _add_changes(predict)

    ask = commands.add_parser("ask", help="list the samples of a run whose labels would help most, to be filled in")
    ask.add_argument("run_dir", metavar="RUN_DIR")
    ask.add_argument("--n", metavar="N", type=int, default=20, help="how many (20)")
    ask.add_argument("--random", action="store_true", help="at random: their labels give an unbiased estimate")
    ask.add_argument("--out", metavar="FILE.csv", help="the file to write (default ./ask.csv)")
    ask.add_argument("--force", action="store_true", help="overwrite a file that exists")

    label = commands.add_parser("label", help="label samples with finished models of the parties, without training")
    label.add_argument(
        "samples", metavar="DATA", help="a folder of images, an .npz file with x_test, an .npy file or a .csv table"
    )
    label.add_argument(
        "--teacher",
        metavar="FILE[=CLASS,...]",
        action="append",
        required=True,
        help="an .onnx, .skops or .npy file, with the class of each output where the file has none; repeatable",
    )
    label.add_argument("--classes", metavar="CLASS,...", help="all classes in order (default: the teachers', sorted)")
    label.add_argument("--student", metavar="MODEL", help="distill the labels into this model, which then predicts")
    label.add_argument(
        "--features", metavar="FILE.npy", help="features of the samples [M, D], to cluster the labels by"
    )
    label.add_argument("--id-column", metavar="NAME", help="the column of the ids of a table (default id)")
    label.add_argument("--label-column", metavar="NAME", help="the column of true labels, used only for scoring")
    label.add_argument(
        "--label-folders", action="store_true", help="the subfolders of images are true labels, used only for scoring"
    )
    _add_changes(label)
    label.add_argument("--out", metavar="RUN_DIR", help="the run directory (default runs/NAME-labels)")

    export = commands.add_parser("export", help="write the model of a finished run for other programs")
    export.add_argument("run_dir", metavar="RUN_DIR")
    export.add_argument("--onnx", action="store_true", required=True, help="as an ONNX file, checked against PyTorch")
    export.add_argument("--out", metavar="FILE.onnx", help="the file to write (default RUN_DIR/model.onnx)")

    data = commands.add_parser("data", help="describe a configuration's data and split, in numbers and as a picture")
    data.add_argument("--cf", metavar="FILE.yaml", required=True, help="the configuration, in FedML's format")
    _add_changes(data)
    data.add_argument("--plot", metavar="FILE.png", help="draw clients by classes, darker and larger for more samples")

    _add_compare(commands)

    commands.add_parser("doctor", help="check the installation and say how to repair it")

    example = commands.add_parser("example", help="write a packaged configuration; without a name, list them")
    example.add_argument("name", nargs="?", metavar="NAME")
    example.add_argument("-o", "--output", metavar="FILE", help="the file to write (default ./NAME.yaml)")
    example.add_argument("--force", action="store_true", help="overwrite a file that exists")
    example.add_argument(
        "--from",
        metavar=("CLIENTS.csv", "SERVER.csv"),
        nargs=2,
        help="own_csv: find label, ids, columns to ignore and missing values in these files",
    )
    example.add_argument("--label", metavar="COLUMN", help="with --from: the column of the classes")

    report = commands.add_parser("report", help="write the report.html of a run again, or compare several runs")
    report.add_argument("run_dirs", metavar="RUN_DIR", nargs="+")
    report.add_argument("-o", "--output", metavar="FILE.html", help="another file to write")

    runs = commands.add_parser("runs", help="list the runs in a folder: start, data, algorithm, accuracy, state")
    runs.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="default ./runs")
    runs.add_argument(
        "--compare", metavar=("A", "B"), nargs=2, help="compare two runs: results, agreement, differing settings"
    )

    invite = commands.add_parser(
        "invite", help="write a folder for the server and one per silo: certificate, configuration, start script"
    )
    invite.add_argument("names", metavar="NAME", nargs="*", help="the silos, by rank; default silo1, silo2, ...")
    invite.add_argument("--cf", metavar="FILE.yaml", help="the configuration that all parties share")
    invite.add_argument("--server", metavar="HOST:PORT", help="where the silos reach the server (port: default 8890)")
    invite.add_argument("--out", metavar="DIR", default="federation", help="the folder of the federation (federation)")
    invite.add_argument(
        "--rotate", action="store_true", help="issue new keys and certificates, to the named parties or to all"
    )
    invite.add_argument(
        "--revoke", metavar="NAME", help="revoke a silo's certificates: the server refuses them at once"
    )
    _add_changes(invite)

    preflight = commands.add_parser(
        "preflight", help="check a party of a federation before anything trains: certificate, data, server, clock, disk"
    )
    preflight.add_argument("--cf", metavar="FILE.yaml", required=True, help="the configuration of this party")
    preflight.add_argument("--role", choices=("server", "client"), help="the role of this party")
    preflight.add_argument("--rank", type=int, metavar="R", help="0 is the server, R the silo of shard R-1")
    _add_changes(preflight)

    watch = commands.add_parser("watch", help="a live page of a run, on this machine: curves, clients, phase, warnings")
    watch.add_argument("run_dir", metavar="RUN_DIR", help="a run directory, or a silo's folder")
    watch.add_argument("--port", metavar="P", type=int, help="default 8642, or a free one")

    audit = commands.add_parser("audit", help="check the log of all messages of a party, or compare two parties' logs")
    audit.add_argument("action", choices=("verify",))
    audit.add_argument("files", metavar="FILE", nargs="+", help="audit.jsonl or its folder; of two parties to compare")

    completion = commands.add_parser("completion", help="print the completion script of a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="several algorithms on one setup: a table over seeds, and curves")
    compare.add_argument("--cf", metavar="FILE.yaml", required=True, help="the setup, in FedML's format")
    compare.add_argument(
        "--algorithms", metavar="A,B,...", help="such as FedAvg,FedDF,MrTF:tuned (default: all but MeasuredScaffold)"
    )
    compare.add_argument("--ablation", action="store_true", help="compare the modules of MrTF instead, and draw bars")
    compare.add_argument("--seeds", metavar="N", type=int, default=3, help="random_seed and the N-1 after it (3)")
    compare.add_argument(
        "--grid",
        metavar="KEY=V1,V2",
        action="append",
        default=[],
        help="try each value and show each algorithm's best, chosen by labels; may be given several times",
    )
    compare.add_argument(
        "--vary",
        metavar="'KEY=V1,V2 KEY=V'",
        action="append",
        default=[],
        help="show each value, or each combination of several keys' values, as a row in addition to the unchanged "
        "algorithm; may be given several times",
    )
    compare.add_argument(
        "--holdout",
        metavar="FRACTION",
        type=float,
        help="without labels of the server's set: hold out this fraction of each client's labelled samples, such as "
        "0.2, and compare on those",
    )
    compare.add_argument("--target", metavar="ACC", type=float, help="also show the rounds needed to reach it")
    compare.add_argument(
        "--jobs", metavar="N", type=int, help="concurrent runs, which share the cores (default: cores / threads)"
    )
    compare.add_argument("--out", metavar="DIR", help="the output folder (default comparisons/FILE)")
    _add_changes(compare)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="[SECTION.]KEY=VALUE",
        action="append",
        default=[],
        help="change a key of the configuration; may be given several times",
    )


if __name__ == "__main__":
    sys.exit(main())
