"""The options of `mrtf compare`. Nothing heavy is imported here: the command line asks before it knows the command."""

from __future__ import annotations

import argparse
from typing import Any


def add_compare(commands: Any) -> argparse.ArgumentParser:
    """Give the command line its `compare`; its options come back, for more to be added."""
    what = "several algorithms on one scene: a table over seeds, and curves"
    compare: argparse.ArgumentParser = commands.add_parser("compare", help=what)
    compare.add_argument("--cf", metavar="FILE.yaml", required=True, help="the scene, in FedML's format")
    compare.add_argument(
        "--algorithms", metavar="A,B,...", help="such as FedAvg,FedDF,MrTF:tuned (default: all but FadingScaffold)"
    )
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
    compare.add_argument(
        "--rehearse",
        metavar="SHARE",
        type=float,
        help="without labels for the server's set: hold out this share of each client's labelled samples, such as 0.2, "
        "and compare on those",
    )
    compare.add_argument("--target", metavar="ACC", type=float, help="also tell the rounds needed to reach it")
    compare.add_argument(
        "--jobs", metavar="N", type=int, help="runs at once; they share the cores (default: as many as cores bear)"
    )
    compare.add_argument("--out", metavar="DIR", help="where all of it goes (default comparisons/FILE)")
    return compare
