"""The callback that accounts for the privacy budget of a run, and the ledger that survives a crash."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..privacy.budget import UNBOUNDED, Charge, PrivacyBudget
from ..training.files import append_line
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

_log = logging.getLogger(__name__)

LEDGER = Path("state") / "privacy.jsonl"


class PrivacyAccount(Callback):
    """Charges every sending of tasks, also before a resume, and adds both epsilons to each round's metrics.

    A round is charged before its tasks are sent, so that a round which a crash interrupts is charged too: when it is
    repeated, the server sees a second noisy copy. A simulation draws the same noise again, so nothing new is seen.
    """

    def __init__(self, budget: PrivacyBudget) -> None:
        self.budget = budget
        self._charges: set[Charge] = set()

    def on_start(self, run: Run) -> None:
        """Add the charges of earlier rounds."""
        charges, damaged = Ledger(run.directory.path).read()
        for charge in charges:
            self._add(run, charge)
        unknown = set(range(run.state.round)) - {charge.round for charge in charges}
        if (unknown or damaged) and self.budget.is_active:
            self.budget.add_unknown()
            _log.warning(
                "no privacy is guaranteed: epsilon is %r, since %d of the %d earlier rounds are not in the ledger "
                "(state/privacy.jsonl); they ran without dp_args, or their lines are lost",
                UNBOUNDED,
                len(unknown) or damaged,
                run.state.round,
            )

    def on_round_begin(self, run: Run, clients: Sequence[int]) -> None:
        """Charge these clients, in the ledger first."""
        if not self.budget.is_active:
            return
        charge = self.budget.make_charge(run.state.round, clients)
        if self._add(run, charge):
            Ledger(run.directory.path).append(charge)

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Add both epsilons to the metrics."""
        line |= self.budget.epsilons()

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Add the budget to the summary."""
        summary |= self.budget.summary()

    def _add(self, run: Run, charge: Charge) -> bool:
        """Count the charge; False if it reveals nothing new."""
        if run.settings.common.training_type == "simulation" and charge in self._charges:
            return False
        self._charges.add(charge)
        self.budget.add(charge)
        return True


class Ledger:
    """state/privacy.jsonl: one line per sending of tasks, synced to disk before the tasks are sent."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / LEDGER

    def read(self) -> tuple[list[Charge], int]:
        """The charges in their order, and the number of lines that cannot be read."""
        if not self.path.exists():
            return [], 0
        content = self.path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        if complete != content:
            # A kill has cut the last line short, so its tasks were not sent. The next line must start on its own.
            with self.path.open("rb+") as file:
                file.truncate(len(complete))
        charges, damaged = [], 0
        for line in complete.splitlines():
            try:
                charges.append(_parse_charge(line))
            except (ValueError, KeyError, TypeError):
                damaged += 1
        return charges, damaged

    def append(self, charge: Charge) -> None:
        """Write the charge; it is on disk when this returns."""
        append_line(self.path, json.dumps(asdict(charge)))


def _parse_charge(line: bytes) -> Charge:
    values = json.loads(line)
    clip = values["clip"]
    return Charge(
        int(values["round"]),
        tuple(int(client) for client in values["clients"]),
        None if clip is None else float(clip),
        float(values["sigma"]),
        float(values["rate"]),
    )
