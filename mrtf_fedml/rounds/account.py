"""The callback that tells what privacy a run has spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..privacy.budget import PrivacyBudget
from .callbacks import Callback

if TYPE_CHECKING:
    from .loop import Run


class PrivacyAccount(Callback):
    """Counts the rounds, those before a resume among them, and writes both epsilons into each line."""

    def __init__(self, budget: PrivacyBudget) -> None:
        self.budget = budget

    def on_start(self, run: Run) -> None:
        """What was spent before."""
        for line in run.store.read_metrics():
            self.budget.add_round(line["clients"])

    def on_round(self, run: Run, line: dict[str, Any]) -> None:
        """One round more."""
        self.budget.add_round(line["clients"])
        line |= self.budget.spent()

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The whole."""
        summary |= self.budget.summary()
