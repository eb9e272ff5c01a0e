"""Several `mrtf run`s, one after another, in ranks that import FedML once: each line of the file is one command."""

from __future__ import annotations

import sys
from pathlib import Path

from mrtf_fedml.cli import main

if __name__ == "__main__":
    for command in Path(sys.argv[1]).read_text().splitlines():
        code = main(command.split())
        if code != 0:
            sys.exit(code)
