"""Shared by the scripts that compare two checkouts: their options and the format of repeated measurements."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path


def parse_checkouts(description: str | None) -> argparse.Namespace:
    """The options `old` and `new`, folders of two versions, and `repetitions`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    return parser.parse_args()


def format_spread(values: Sequence[float]) -> str:
    """The median, the smallest and the largest value."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
