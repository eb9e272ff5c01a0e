"""Every figure and table of the paper, run again: `python benchmarks/paper EXPERIMENT`."""

from __future__ import annotations
