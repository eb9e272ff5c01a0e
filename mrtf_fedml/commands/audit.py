"""`mrtf audit verify`: check the chain of an audit log, and that the logs of two parties agree."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UserError
from ..fedml_bridge.backends.cross_silo.audit import AUDIT, VerifiedLog, compare_logs, verify_log


def main(options: argparse.Namespace) -> int:
    """Print what was found; the exit code is 1 if a chain is broken or the logs disagree."""
    files = [Path(name) / AUDIT if Path(name).is_dir() else Path(name) for name in options.files]
    if len(files) > 2:
        raise UserError(
            "mrtf audit verify takes one log, or two to compare; compare the server with one silo at a time"
        )
    logs = [verify_log(file) for file in files]
    for log in logs:
        _print_log(log)
    problems: list[str] = []
    if len(logs) == 2:
        problems, notes = compare_logs(*logs)
        print(f"the logs of {logs[0].name} and {logs[1].name} {'disagree' if problems else 'agree'}")
        _print_sentences(problems, notes)
    return 1 if problems or any(log.problems for log in logs) else 0


def _print_log(log: VerifiedLog) -> None:
    state = "the chain is broken" if log.problems else "the chain is intact"
    print(f"{log.file}: log of {log.name}, {len(log.messages)} messages; {state}; last hash {log.head}")
    _print_sentences(log.problems, log.notes)


def _print_sentences(problems: list[str], notes: list[str]) -> None:
    for sentence in problems:
        print(f"  wrong  {sentence}")
    for sentence in notes:
        print(f"  note   {sentence}")
