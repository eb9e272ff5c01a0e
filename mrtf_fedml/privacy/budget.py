"""The privacy budget that a run has spent so far, by Opacus's accountant."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..errors import UserError
from ..settings import RunSettings

_log = logging.getLogger(__name__)

#: What stands for epsilon where nothing bounds what an update tells.
UNBOUNDED = "none"

NOT_POISSON = (
    "epsilon_release assumes that each client takes part by its own coin; here a fixed number is drawn per round, so "
    "it is an approximation, and epsilon_server, which needs no such assumption, is the number to rely on"
)


class PrivacyBudget:
    """Turns the rounds done into (epsilon, delta).

    The noise multiplier is sigma / clip: the budget is that of one client's part, against the same run with an update
    of zero in its place. Two views of it:

    - epsilon_server: the server knows who took part, so nothing is amplified; the busiest client's rounds are composed.
    - epsilon_release: somebody who sees results alone; amplified by the sampling rate, over all rounds.

    Rounds are counted as they come, so that a round costs the same however many there were before it.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.privacy = settings.privacy
        train = settings.train
        self.rate = train.client_num_per_round / train.client_num_in_total
        self.bounded = self.privacy.active and self.privacy.clip is not None and self.privacy.sigma > 0
        self._rounds = 0
        self._parts: Counter[int] = Counter()
        if self.bounded:
            _accountant()
        elif self.privacy.active:
            missing = "dp_args.sigma" if self.privacy.clip is not None else "dp_args.clip"
            _log.warning("no privacy is guaranteed: epsilon is %r, since %s is not set", UNBOUNDED, missing)

    def add_round(self, clients: Iterable[int]) -> None:
        """One round more, in which these clients took part."""
        self._rounds += 1
        self._parts.update(set(clients))

    def spent(self) -> dict[str, float | str | None]:
        """Both epsilons after the rounds so far; None where DP is off."""
        if not self.privacy.active:
            return {"epsilon_server": None, "epsilon_release": None}
        if not self.bounded:
            return {"epsilon_server": UNBOUNDED, "epsilon_release": UNBOUNDED}
        return {
            "epsilon_server": self._epsilon(1.0, max(self._parts.values(), default=0)),
            "epsilon_release": self._epsilon(self.rate, self._rounds),
        }

    def summary(self) -> dict[str, Any]:
        """What a run's summary tells; nothing where DP is off."""
        if not self.privacy.active:
            return {}
        summary: dict[str, Any] = {**self.spent(), "privacy_delta": self.privacy.delta}
        if self.bounded:
            summary["privacy_note"] = NOT_POISSON
        return summary

    def _epsilon(self, rate: float, steps: int) -> float:
        assert self.privacy.clip is not None
        accountant = _accountant()
        if steps:
            # So many equal steps are one entry of the accountant's history.
            accountant.history = [(self.privacy.sigma / self.privacy.clip, rate, steps)]
        return float(accountant.get_epsilon(self.privacy.delta))


def _accountant() -> Any:
    # Imported late: it takes seconds, and only runs with privacy need it.
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UserError(
            f"the privacy budget (dp_args) needs Opacus, which cannot be imported ({error}); install it with: "
            "pip install opacus"
        ) from None
    return RDPAccountant()
