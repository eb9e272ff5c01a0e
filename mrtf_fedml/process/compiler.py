"""The C++ compiler that `device_args.compile` needs on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys

from ..errors import UserError


def check_compiler(wanted: bool) -> None:
    """Refuse `compile: true` where there is no compiler; PyTorch would say so in the first round, at length."""
    if not wanted:
        return
    # PyTorch's own choice.
    command = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    try:
        subprocess.run([command, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise UserError(
            f"device_args.compile is true, but there is no C++ compiler: {command!r} cannot be run; install one (such "
            "as Debian's g++), name yours in the variable CXX, or leave compile out"
        ) from None
