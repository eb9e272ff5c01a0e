"""The options of `mrtf bench`. Nothing heavy is imported here: the command line asks before it knows the command."""

from __future__ import annotations

from typing import Any


def add_bench(commands: Any) -> None:
    """Give the command line its `bench`."""
    bench = commands.add_parser(
        "bench", help="what a round costs on this machine, as ratios; without a name, all of it"
    )
    bench.add_argument(
        "names", metavar="NAME", nargs="*", help="refine local round clients server_set classes ranks peers"
    )
    bench.add_argument("--quick", action="store_true", help="a smoke test of seconds: its figures mean nothing")
    bench.add_argument(
        "--precision",
        choices=("float32", "bf16"),
        default="float32",
        help="in what refine, local and round compute, and what their limits are measured in",
    )
    bench.add_argument("--out", metavar="FILE.json", help="write the figures down")
    bench.add_argument(
        "--compare", metavar="FILE.json", help="say what got slower since; exit code 1 where anything did"
    )
