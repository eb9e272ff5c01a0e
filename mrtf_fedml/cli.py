"""`mrtf`: the command line. It imports nothing heavy, so that `mrtf --help` answers at once."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence

from .commands.bench_words import add_bench
from .commands.compare_words import add_compare
from .commands.reproduce_words import add_reproduce
from .errors import RunInterrupted, RunStopped, UserError, shown
from .process.allocation import keep_freed_memory
from .process.imports import without_collecting
from .process.logs import show_log
from .process.pipes import READER_GONE, reader_is_gone
from .process.signals import code_of, end_without_a_word, hear_sigterm
from .process.start import started_rank
from .process.waiting import wait_passively
from .version import __version__

#: What a full, closed or broken disk says.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code.

    0 well, 1 failed, 2 a wrong setting or file, 130 after Ctrl-C, 143 after SIGTERM, 141 when its reader left.
    """
    parser = _parser()
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help()
        return 0
    wait_passively()
    keep_freed_memory()
    show_log(getattr(options, "verbose", False))
    hear_sigterm()
    try:
        code = _COMMANDS[options.command](options)
        return READER_GONE if reader_is_gone() else code
    except UserError as error:
        _say(f"mrtf: {error}")
        return 2
    except RunStopped as error:
        print(f"mrtf: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError) and reader_is_gone():
            return READER_GONE
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            _say(f"mrtf: {shown(error.filename)} is no path that can be opened ({error.strerror}); correct it")
            return 2
        if error.errno not in _DISK:
            raise
        print(f"mrtf: {error.filename or 'a file'} cannot be written or read ({error.strerror})", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        code = code_of(interrupt)
        end_without_a_word(code)
        sentence = _WHEN_INTERRUPTED.get(options.command, "interrupted")
        _say(f"mrtf: {interrupt if isinstance(interrupt, RunInterrupted) else sentence}")
        return code


#: What is left where no run can tell it.
_WHEN_INTERRUPTED = {
    "run": "interrupted; nothing was finished",
    "compare": "interrupted; finished runs and rounds are kept: the same command goes on with them",
}


def _say(text: str) -> None:
    """Once, however many ranks have come to the same end."""
    if started_rank() == 0:
        print(text, file=sys.stderr, flush=True)


def _run(options: argparse.Namespace) -> int:
    if "fedml" not in sys.modules:
        # At once: the imports are the longest silence of a run.
        _say("loading FedML ...")
    with without_collecting():
        from .commands.run import run

    return run(options)


def _data(options: argparse.Namespace) -> int:
    from .commands.data import describe

    print(describe(options.cf, options.set, options.plot))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from .commands.compare import compare

    return compare(options)


def _reproduce(options: argparse.Namespace) -> int:
    from .commands.reproduce import reproduce

    return reproduce(options)


def _doctor(options: argparse.Namespace) -> int:
    from .commands.doctor import doctor

    return doctor()


def _example(options: argparse.Namespace) -> int:
    from pathlib import Path

    from .commands.example import described, write_example

    if options.name is None:
        print(described())
        return 0
    print(write_example(options.name, Path(options.output) if options.output else None, options.force))
    return 0


def _report(options: argparse.Namespace) -> int:
    from .commands.report import report

    print(report(options.run_dirs, options.output))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from .commands.predict import predict

    print(predict(options.run_dir, options.samples, options.out))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from .commands.bench import bench

    return bench(options)


def _runs(options: argparse.Namespace) -> int:
    from .commands.runs import compared_runs, list_runs

    print(compared_runs(*options.compare) if options.compare else list_runs(options.folder))
    return 0


def _completion(options: argparse.Namespace) -> int:
    from .commands.completion import completion

    print(completion(_parser(), options.shell))
    return 0


_COMMANDS = {
    "run": _run,
    "predict": _predict,
    "data": _data,
    "compare": _compare,
    "reproduce": _reproduce,
    "doctor": _doctor,
    "example": _example,
    "report": _report,
    "runs": _runs,
    "completion": _completion,
    "bench": _bench,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mrtf",
        description="Transductive federated learning with MrTF, inside FedML: labels for the server's data from a "
        "federation that never shares its own.",
    )
    parser.add_argument("--version", action="version", version=f"mrtf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    run = commands.add_parser("run", help="run a configuration: predictions, model and report in a run's folder")
    run.add_argument("--cf", metavar="FILE.yaml", help="the configuration, in FedML's format")
    _add_changes(run)
    run.add_argument("--resume", metavar="RUN_DIR", help="go on with an interrupted run")
    run.add_argument("--role", choices=("server", "client"), help="across silos: what this process is")
    run.add_argument("--rank", type=int, metavar="R", help="across silos: 0 is the server, R the silo of shard R-1")
    run.add_argument("--profile", action="store_true", help="say where the CPU seconds go: in the report, and a trace")
    run.add_argument("--verbose", action="store_true", help="let FedML's log through")

    predict = commands.add_parser("predict", help="label more data of the same kind by a finished run's model")
    predict.add_argument("run_dir", metavar="RUN_DIR")
    predict.add_argument(
        "samples", metavar="INPUT", help="an .npz file with x_test, a .csv file, an image or a folder of them"
    )
    predict.add_argument("--out", metavar="FILE.csv", help="where to write (default ./NAME.predictions.csv)")

    data = commands.add_parser("data", help="describe a configuration's data and split, in numbers and as a picture")
    data.add_argument("--cf", metavar="FILE.yaml", required=True, help="the configuration, in FedML's format")
    _add_changes(data)
    data.add_argument("--plot", metavar="FILE.png", help="draw clients by classes, darker and larger for more samples")

    _add_changes(add_compare(commands))
    _add_changes(add_reproduce(commands))

    commands.add_parser("doctor", help="say what is installed, what is missing and what to do about it")

    example = commands.add_parser("example", help="write a packaged configuration; without a name, list them")
    example.add_argument("name", nargs="?", metavar="NAME")
    example.add_argument("-o", "--output", metavar="FILE", help="where to write it (default ./NAME.yaml)")
    example.add_argument("--force", action="store_true", help="overwrite a file that exists")

    report = commands.add_parser("report", help="write a run's report.html anew; or several runs side by side")
    report.add_argument("run_dirs", metavar="RUN_DIR", nargs="+")
    report.add_argument("-o", "--output", metavar="FILE.html", help="another file to write")

    runs = commands.add_parser("runs", help="list the runs in a folder: when, data, algorithm, accuracy, state")
    runs.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="default ./runs")
    runs.add_argument(
        "--compare", metavar=("A", "B"), nargs=2, help="two runs instead: how they ended, agree and differ in settings"
    )

    completion = commands.add_parser("completion", help="print what lets a shell complete these words")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    add_bench(commands)
    return parser


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
