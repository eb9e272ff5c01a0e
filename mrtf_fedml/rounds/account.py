"""The callback that tells what privacy a run has spent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..privacy.budget import UNBOUNDED, Charge, PrivacyBudget
from .callbacks import Callback
from .ledger import Ledger

if TYPE_CHECKING:
    from .loop import Run

_log = logging.getLogger(__name__)


class PrivacyAccount(Callback):
    """Charges what is handed out, also before a resume, and writes both epsilons into each line.

    A round is charged before it is asked for, so that one which a crash has cut off is charged too: when it is
    repeated, the server sees a second noisy copy. A simulation draws the same noise again, and sees nothing new.
    """

    def __init__(self, budget: PrivacyBudget) -> None:
        self.budget = budget
        self._charged: set[Charge] = set()

    def on_start(self, run: Run) -> None:
        """What was spent before."""
        charges, broken = Ledger(run.store.path).read()
        for charge in charges:
            self._add(run, charge)
        unknown = set(range(run.state.round)) - {charge.round for charge in charges}
        if (unknown or broken) and self.budget.active:
            self.budget.add_unknown()
            _log.warning(
                "no privacy is guaranteed: epsilon is %r, since %d of the %d rounds before are not in the account "
                "(state/privacy.jsonl); they were done without dp_args, or their lines are lost",
                UNBOUNDED,
                len(unknown) or broken,
                run.state.round,
            )

    def on_asking(self, run: Run, clients: Sequence[int]) -> None:
        """One handing out more."""
        if not self.budget.active:
            return
        charge = self.budget.charge_of(run.state.round, clients)
        if self._add(run, charge):
            Ledger(run.store.path).append(charge)

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """What is spent by now."""
        line |= self.budget.spent()

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The whole."""
        summary |= self.budget.summary()

    def _add(self, run: Run, charge: Charge) -> bool:
        """Count the charge; False where it shows nothing that was not shown before."""
        if run.settings.common.training_type == "simulation" and charge in self._charged:
            return False
        self._charged.add(charge)
        self.budget.add(charge)
        return True
