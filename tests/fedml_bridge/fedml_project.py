"""A FedML project without the plugin: arguments that FedML has read from a file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fedml.arguments import Arguments


def fedml_arguments(file: Path, rank: int = 0) -> Arguments:
    """FedML's own arguments, from a configuration file, without its command line."""
    role = "server" if rank == 0 else "client"
    command_line = Namespace(yaml_config_file=str(file), rank=rank, role=role, run_id="0")
    return Arguments(command_line, override_cmd_args=True)
