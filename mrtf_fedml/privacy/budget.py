"""The privacy budget that a run has spent so far, by Opacus's accountant."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Charge:
    """What one handing out of a round costs: who was asked, and how their updates were protected then.

    Attributes:
        round: its index.
        clients: that were asked.
        clip: `dp_args.clip` as it was.
        sigma: `dp_args.sigma` as it was.
        rate: the share of all clients that a round asked.
    """

    round: int
    clients: tuple[int, ...]
    clip: float | None
    sigma: float
    rate: float

    @property
    def multiplier(self) -> float | None:
        """The noise multiplier sigma / clip; None where nothing is bounded."""
        return self.sigma / self.clip if self.clip is not None and self.sigma > 0 else None


class PrivacyBudget:
    """Turns what was handed out into (epsilon, delta).

    The noise multiplier is sigma / clip: the budget is that of one client's part, against the same run with an update
    of zero in its place. Two views of it:

    - epsilon_server: the server knows who took part, so nothing is amplified; the rounds of the client that has told
      most are composed.
    - epsilon_release: somebody who sees results alone; amplified by the sampling rate, over all rounds.

    Each charge is composed with its own noise, whatever the settings are now. Charges are counted as they come, so
    that a round costs the same however many there were before it.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.privacy = settings.privacy
        train = settings.train
        self.rate = train.client_num_per_round / train.client_num_in_total
        self._bounded = True
        self._charged = False
        self._all: Counter[tuple[float, float]] = Counter()
        self._by_client: defaultdict[int, Counter[float]] = defaultdict(Counter)
        if self.privacy.active and self._missing is None:
            _accountant()
        elif self.privacy.active:
            _log.warning("no privacy is guaranteed: epsilon is %r, since %s is not set", UNBOUNDED, self._missing)

    @property
    def active(self) -> bool:
        """Whether there is an account to give: updates are protected now, or were before."""
        return self.privacy.active or self._charged

    @property
    def _missing(self) -> str | None:
        if self.privacy.clip is None:
            return "dp_args.clip"
        return None if self.privacy.sigma > 0 else "dp_args.sigma"

    def charge_of(self, round_index: int, clients: Iterable[int]) -> Charge:
        """What it costs to ask these clients, by the settings that hold now."""
        clip, sigma = (self.privacy.clip, self.privacy.sigma) if self.privacy.active else (None, 0.0)
        return Charge(round_index, tuple(sorted(set(clients))), clip, sigma, self.rate)

    def add(self, charge: Charge) -> None:
        """One handing out more."""
        self._charged = True
        if charge.multiplier is None:
            self._bounded = False
            return
        self._all[charge.multiplier, charge.rate] += 1
        for client in charge.clients:
            self._by_client[client][charge.multiplier] += 1

    def add_unknown(self) -> None:
        """Rounds of which nobody knows how they were protected: from here on nothing is claimed."""
        self._bounded = False

    def spent(self) -> dict[str, float | str | None]:
        """Both epsilons after what was handed out so far; None where DP was never on."""
        if not self.active:
            return {"epsilon_server": None, "epsilon_release": None}
        if not self._is_bounded:
            return {"epsilon_server": UNBOUNDED, "epsilon_release": UNBOUNDED}
        # Unamplified, a charge costs in proportion to 1 / multiplier^2 at every order: the largest sum is the worst.
        worst = max(
            self._by_client.values(),
            key=lambda parts: sum(steps / multiplier**2 for multiplier, steps in parts.items()),
            default=Counter[float](),
        )
        return {
            "epsilon_server": self._epsilon([(multiplier, 1.0, steps) for multiplier, steps in worst.items()]),
            "epsilon_release": self._epsilon([(*step, steps) for step, steps in self._all.items()]),
        }

    def summary(self) -> dict[str, Any]:
        """What a run's summary tells; nothing where DP was never on."""
        if not self.active:
            return {}
        summary: dict[str, Any] = {**self.spent(), "privacy_delta": self.privacy.delta}
        if self._is_bounded:
            summary["privacy_note"] = NOT_POISSON
        return summary

    @property
    def _is_bounded(self) -> bool:
        return self._bounded and self.privacy.active and self._missing is None

    def _epsilon(self, history: list[tuple[float, float, int]]) -> float:
        accountant = _accountant()
        # So many equal steps are one entry of the accountant's history.
        accountant.history = history
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
