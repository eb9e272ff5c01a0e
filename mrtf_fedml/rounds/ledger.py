"""What was handed out, written down before it is: the part of a privacy account that must outlive a crash."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ..privacy.budget import Charge
from .whole_file import append_line

NAME = Path("state") / "privacy.jsonl"


class Ledger:
    """A line per handing out, in the run's folder, on the disk before a client hears of it. Lines are only added."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / NAME

    def read(self) -> tuple[list[Charge], int]:
        """The charges in their order, and how many lines cannot be read."""
        if not self.path.exists():
            return [], 0
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            # A kill has cut the last line short, so nothing was handed out after it. The next must not be glued to it.
            with self.path.open("rb+") as file:
                file.truncate(len(whole))
        charges, broken = [], 0
        for line in whole.splitlines():
            try:
                charges.append(_charge(line))
            except (ValueError, KeyError, TypeError):
                broken += 1
        return charges, broken

    def append(self, charge: Charge) -> None:
        """Write the charge down; it is on the disk when this returns."""
        append_line(self.path, json.dumps(asdict(charge)))


def _charge(line: bytes) -> Charge:
    given = json.loads(line)
    clip = given["clip"]
    return Charge(
        int(given["round"]),
        tuple(int(client) for client in given["clients"]),
        None if clip is None else float(clip),
        float(given["sigma"]),
        float(given["rate"]),
    )
