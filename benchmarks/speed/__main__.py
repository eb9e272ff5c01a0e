"""`python benchmarks/speed [NAME ...]`: the cost of a round on this machine, as ratios."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder on the path; the package is found from the root of the repository.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from mrtf_fedml.process.threads import limit_thread_spinning

    # Before PyTorch is imported: its OpenMP reads these settings once.
    limit_thread_spinning()
    from benchmarks.speed.cli import main

    sys.exit(main())
