"""The privacy budget that a run has spent so far, by Opacus's accountant."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import UserError
from ..settings import RunSettings

_log = logging.getLogger(__name__)

#: What stands for epsilon where nothing bounds what an update tells.
UNBOUNDED = "none"

NOT_POISSON = (
    "epsilon_release assumes that each client takes part by its own coin; here a fixed number is drawn a round, so it "
    "is an approximation, and epsilon_server, which needs no such assumption, is the number to rely on"
)


class PrivacyBudget:
    """Turns the rounds done into (epsilon, delta).

    The noise multiplier is sigma / clip: the budget is that of one client's part, against the same run with an update
    of zero in its place. Two views of it:

    - epsilon_server: the server knows who took part, so nothing is amplified; the busiest client's rounds are composed.
    - epsilon_release: somebody who sees results alone; amplified by the sampling rate, over all rounds.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.privacy = settings.privacy
        train = settings.train
        self.rate = train.client_num_per_round / train.client_num_in_total
        self.bounded = self.privacy.active and self.privacy.clip is not None and self.privacy.sigma > 0
        if self.bounded:
            _accountant()
        elif self.privacy.active:
            missing = "dp_args.sigma" if self.privacy.clip is not None else "dp_args.clip"
            _log.warning("no privacy is guaranteed: epsilon is %r, since %s is not set", UNBOUNDED, missing)

    def spent(self, rounds: Iterable[Sequence[int]]) -> dict[str, float | str | None]:
        """Both epsilons after these rounds, each given by the clients that took part; None where DP is off."""
        listed = list(rounds)
        if not self.privacy.active:
            return {"epsilon_server": None, "epsilon_release": None}
        if not self.bounded:
            return {"epsilon_server": UNBOUNDED, "epsilon_release": UNBOUNDED}
        parts = Counter(client for clients in listed for client in set(clients))
        return {
            "epsilon_server": self._epsilon(1.0, max(parts.values(), default=0)),
            "epsilon_release": self._epsilon(self.rate, len(listed)),
        }

    def summary(self, spent: dict[str, Any]) -> dict[str, Any]:
        """What a run's summary tells; nothing where DP is off."""
        if not self.privacy.active:
            return {}
        told: dict[str, Any] = {**spent, "privacy_delta": self.privacy.delta}
        if self.bounded:
            told["privacy_note"] = NOT_POISSON
        return told

    def _epsilon(self, rate: float, steps: int) -> float:
        assert self.privacy.clip is not None
        accountant = _accountant()
        for _ in range(steps):
            accountant.step(noise_multiplier=self.privacy.sigma / self.privacy.clip, sample_rate=rate)
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
