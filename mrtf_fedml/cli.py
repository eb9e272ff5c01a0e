"""`mrtf`: the command line. It imports nothing heavy, so that `mrtf --help` answers at once."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from .errors import RunStopped, UserError
from .process.start import started_rank
from .process.waiting import wait_passively
from .version import __version__

INTERRUPTED = 130


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 well, 1 failed, 2 a wrong setting or file, 130 interrupted."""
    parser = _parser()
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help()
        return 0
    wait_passively()
    _set_up_log(getattr(options, "verbose", False))
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        return _COMMANDS[options.command](options)
    except UserError as error:
        _say(f"mrtf: {error}")
        return 2
    except RunStopped as error:
        print(f"mrtf: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _say("mrtf: interrupted; what was finished is saved")
        return INTERRUPTED


def _say(text: str) -> None:
    """Once, however many ranks have come to the same end."""
    if started_rank() == 0:
        print(text, file=sys.stderr, flush=True)


def _run(options: argparse.Namespace) -> int:
    from .commands.run import run

    return run(options)


def _data(options: argparse.Namespace) -> int:
    from .commands.data import describe

    print(describe(options.cf, options.set, options.plot))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from .commands.compare import compare

    return compare(options)


def _doctor(options: argparse.Namespace) -> int:
    from .commands.doctor import doctor

    return doctor()


def _example(options: argparse.Namespace) -> int:
    from pathlib import Path

    from .commands.example import list_examples, write_example

    if options.name is None:
        print("\n".join(list_examples()))
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
    from .commands.runs import list_runs

    print(list_runs(options.folder))
    return 0


_COMMANDS = {
    "run": _run,
    "predict": _predict,
    "data": _data,
    "compare": _compare,
    "doctor": _doctor,
    "example": _example,
    "report": _report,
    "runs": _runs,
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
    predict.add_argument("samples", metavar="INPUT", help="an .npz file with x_test, a .csv file, a folder of images")
    predict.add_argument("--out", metavar="FILE.csv", help="where to write (default ./NAME.predictions.csv)")

    data = commands.add_parser("data", help="describe a configuration's data and split, in numbers and as a picture")
    data.add_argument("--cf", metavar="FILE.yaml", required=True, help="the configuration, in FedML's format")
    _add_changes(data)
    data.add_argument("--plot", metavar="FILE.png", help="draw clients by classes, darker and larger for more samples")

    _add_compare(commands)

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

    bench = commands.add_parser(
        "bench", help="what a round costs on this machine, as ratios; without a name, all of it"
    )
    bench.add_argument(
        "names", metavar="NAME", nargs="*", help="refine local round clients server_set classes ranks peers"
    )
    bench.add_argument("--quick", action="store_true", help="a smoke test of seconds: its figures mean nothing")
    bench.add_argument("--out", metavar="FILE.json", help="write the figures down")
    bench.add_argument(
        "--compare", metavar="FILE.json", help="say what got slower since; exit code 1 where anything did"
    )
    return parser


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="several algorithms on one scene: a table over seeds, and curves")
    compare.add_argument("--cf", metavar="FILE.yaml", required=True, help="the scene, in FedML's format")
    compare.add_argument("--algorithms", metavar="A,B,...", help="such as FedAvg,FedDF,MrTF:tuned (default: all)")
    compare.add_argument("--ablation", action="store_true", help="compare MrTF's modules instead, and draw bars")
    compare.add_argument("--seeds", metavar="N", type=int, default=3, help="random_seed and the N-1 after it (3)")
    compare.add_argument(
        "--grid",
        metavar="KEY=V1,V2",
        action="append",
        default=[],
        help="try each value and show each algorithm's best, which labels choose; may be given several times",
    )
    compare.add_argument(
        "--vary",
        metavar="'KEY=V1,V2 KEY=V'",
        action="append",
        default=[],
        help="show each value, or each combination of several keys' values, as a row of its own beside the unchanged "
        "algorithm; may be given several times",
    )
    compare.add_argument("--target", metavar="ACC", type=float, help="also tell the rounds needed to reach it")
    compare.add_argument("--jobs", metavar="N", type=int, default=1, help="runs at once; they share the cores (1)")
    compare.add_argument("--out", metavar="DIR", help="where all of it goes (default comparisons/FILE)")
    _add_changes(compare)


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="[SECTION.]KEY=VALUE",
        action="append",
        default=[],
        help="change a key of the configuration; may be given several times",
    )


def _set_up_log(verbose: bool) -> None:
    log = logging.getLogger("mrtf_fedml")
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    log.propagate = False
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        log.addHandler(handler)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
