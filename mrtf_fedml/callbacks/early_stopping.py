"""Stops a run when the accuracy that its clients estimate no longer improves."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

_log = logging.getLogger(__name__)

#: Rounds whose estimates are averaged: one round's comes from a few clients' held-out samples and varies by chance.
WINDOW = 5
_METRIC = "estimated_accuracy"


class EarlyStopping(Callback):
    """`train_args.early_stopping`. It reads metrics only, so that a resumed run stops after the same round."""

    def __init__(self, patience: int) -> None:
        """Stop after `patience` rounds without improvement."""
        self.patience = patience
        self._estimates: list[float] = []

    def on_start(self, run: Run) -> None:
        """Read the finished rounds of a resumed run; it may have been killed after the round that stops it."""
        if run.algorithm.evaluation_state(run.state, run.context) is None:
            _log.warning(
                "train_args.early_stopping has no effect: the clients of this run hold out no samples "
                "(mrtf_args.client_validation); all %d rounds are run",
                run.rounds,
            )
        lines = run.directory.read_metrics()[: run.state.round]
        self._estimates = [line[_METRIC] for line in lines if line.get(_METRIC) is not None]
        self._check(run)

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Add the round's estimate, if the clients have made one."""
        if line.get(_METRIC) is not None:
            self._estimates.append(line[_METRIC])
            self._check(run)

    def _check(self, run: Run) -> None:
        plural = "s" if self.patience > 1 else ""
        if has_stalled(self._estimates, self.patience):
            run.stop(
                f"the accuracy that the clients estimate has not improved for {self.patience} round{plural} "
                "(train_args.early_stopping)"
            )


def has_stalled(estimates: Sequence[float], patience: int) -> bool:
    """Whether the moving average over WINDOW rounds reached its maximum `patience` rounds ago, or earlier.

    >>> has_stalled([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], patience=2)
    False
    >>> has_stalled([0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], patience=2)
    True
    """
    averages = [statistics.fmean(estimates[end - WINDOW : end]) for end in range(WINDOW, len(estimates) + 1)]
    return len(averages) > patience and max(averages[-patience:]) <= max(averages[:-patience])
