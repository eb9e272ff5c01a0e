"""What the scripts here that take turns share: how two checkouts are asked for, and how repeated figures are told."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path


def two_checkouts(description: str | None) -> argparse.Namespace:
    """`old` and `new`, folders of two versions, and `repetitions`, from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    return parser.parse_args()


def told(figures: Sequence[float]) -> str:
    """The median, and the least and the largest."""
    return f"{statistics.median(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})"
