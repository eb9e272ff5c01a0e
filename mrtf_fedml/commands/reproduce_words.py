"""The words of `mrtf reproduce`. Nothing heavy is imported, so that `mrtf --help` answers at once."""

from __future__ import annotations

import argparse
from typing import Any


def add_reproduce(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the others."""
    reproduce: argparse.ArgumentParser = commands.add_parser(
        "reproduce", help="a figure or table of the paper, run again; --list names them"
    )
    reproduce.add_argument("scene", nargs="?", metavar="SCENE", help="such as logi, compare or dp")
    reproduce.add_argument("--list", action="store_true", help="all scenes: parameters, data needed, time")
    reproduce.add_argument("--page", action="store_true", help="one page of all scenes done so far")
    reproduce.add_argument("--preset", metavar="P", default="paper", help="paper (default), another, or all of MrTF's")
    reproduce.add_argument("--budget", metavar="B", type=float, default=1.0, help="a fraction of the paper's size (1)")
    reproduce.add_argument("--seeds", metavar="N", type=int, help="seeds 0 to N-1 (1; of logi 3)")
    reproduce.add_argument("--jobs", metavar="N", type=int, default=1, help="runs at once; they share the cores (1)")
    reproduce.add_argument(
        "--data", metavar="DIR", default="~/fedml_data", help="where the datasets lie (~/fedml_data)"
    )
    reproduce.add_argument(
        "--stand-in",
        metavar="[NAME=]DATA",
        nargs="?",
        const="",
        action="append",
        help="where data are missing, take the embedded digits, or this .npz file or dataset",
    )
    reproduce.add_argument("--only", metavar="A,B", help="confine the scene to some of its datasets")
    reproduce.add_argument(
        "--panel", metavar="A,B", action="append", default=[], help="some panels alone, such as C=3 or mnist,alpha=0.1"
    )
    reproduce.add_argument("--grid", action="store_true", help="try all of the paper's learning rates; labels choose")
    reproduce.add_argument("--out", metavar="DIR", default="reproductions", help="where all of it goes (reproductions)")
    return reproduce
