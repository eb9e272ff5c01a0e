"""The cost of a round as ratios, measured in one process on generated data: `python benchmarks/speed`."""

from __future__ import annotations
