"""The privacy budget that a run has spent, computed by Opacus's accountant."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..config import RunSettings
from ..errors import UserError

_log = logging.getLogger(__name__)

#: The value of epsilon if nothing bounds it.
UNBOUNDED = "none"

NOT_POISSON = (
    "epsilon_release assumes that each client is sampled independently; here a fixed number is drawn per round, so it "
    "is an approximation. epsilon_server needs no such assumption and is the number to rely on"
)


@dataclass(frozen=True)
class Charge:
    """The privacy cost of one broadcast of a round: the clients, and how their updates were protected.

    Attributes:
        round: index of the round.
        clients: the selected clients.
        clip: `dp_args.clip` at that time.
        sigma: `dp_args.sigma` at that time.
        rate: fraction of all clients that a round selects.
    """

    round: int
    clients: tuple[int, ...]
    clip: float | None
    sigma: float
    rate: float

    @property
    def noise_multiplier(self) -> float | None:
        """The ratio sigma / clip; None if the update was not bounded."""
        return self.sigma / self.clip if self.clip is not None and self.sigma > 0 else None


class PrivacyBudget:
    """Computes (epsilon, delta) from the charges of a run.

    The noise multiplier is sigma / clip. The budget is per client: it compares the run with one in which the client's
    update is zero. There are two epsilons:

    - epsilon_server: against the server, which knows the selected clients, so that nothing is amplified; the rounds of
      the client with the highest cost are composed.
    - epsilon_release: against an observer of the results; amplified by the sampling rate, over all rounds.

    Each charge is composed with its own noise, not with the current settings. Charges are counted as they are added,
    so that the cost of a round does not depend on the number of earlier rounds.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.privacy = settings.privacy
        train = settings.train
        self.rate = train.client_num_per_round / train.client_num_in_total
        self._all_bounded = True
        self._has_charges = False
        self._all_charges: Counter[tuple[float, float]] = Counter()
        self._by_client: defaultdict[int, Counter[float]] = defaultdict(Counter)
        if self.privacy.is_active and self._missing_setting is None:
            _accountant()
        elif self.privacy.is_active:
            _log.warning(
                "no privacy is guaranteed: epsilon is %r, since %s is not set", UNBOUNDED, self._missing_setting
            )

    @property
    def is_active(self) -> bool:
        """Whether updates are protected now, or were before."""
        return self.privacy.is_active or self._has_charges

    @property
    def _missing_setting(self) -> str | None:
        if self.privacy.clip is None:
            return "dp_args.clip"
        return None if self.privacy.sigma > 0 else "dp_args.sigma"

    def make_charge(self, round_index: int, clients: Iterable[int]) -> Charge:
        """The charge for selecting these clients with the current settings."""
        clip, sigma = (self.privacy.clip, self.privacy.sigma) if self.privacy.is_active else (None, 0.0)
        return Charge(round_index, tuple(sorted(set(clients))), clip, sigma, self.rate)

    def add(self, charge: Charge) -> None:
        """Count one charge."""
        self._has_charges = True
        if charge.noise_multiplier is None:
            self._all_bounded = False
            return
        self._all_charges[charge.noise_multiplier, charge.rate] += 1
        for client in charge.clients:
            self._by_client[client][charge.noise_multiplier] += 1

    def add_unknown(self) -> None:
        """Count rounds with unknown protection; from then on epsilon is unbounded."""
        self._all_bounded = False

    def epsilons(self) -> dict[str, float | str | None]:
        """Both epsilons so far; None if differential privacy was never on."""
        if not self.is_active:
            return {"epsilon_server": None, "epsilon_release": None}
        if not self._is_bounded:
            return {"epsilon_server": UNBOUNDED, "epsilon_release": UNBOUNDED}
        # Unamplified, the cost is proportional to 1 / multiplier^2 at every order: the largest sum is the worst case.
        worst = max(
            self._by_client.values(),
            key=lambda counts: sum(steps / multiplier**2 for multiplier, steps in counts.items()),
            default=Counter[float](),
        )
        return {
            "epsilon_server": self._epsilon([(multiplier, 1.0, steps) for multiplier, steps in worst.items()]),
            "epsilon_release": self._epsilon([(*step, steps) for step, steps in self._all_charges.items()]),
        }

    def summary(self) -> dict[str, Any]:
        """Entries of the run's summary; empty if differential privacy was never on."""
        if not self.is_active:
            return {}
        summary: dict[str, Any] = {**self.epsilons(), "privacy_delta": self.privacy.delta}
        if self._is_bounded:
            summary["privacy_note"] = NOT_POISSON
        return summary

    @property
    def _is_bounded(self) -> bool:
        return self._all_bounded and self.privacy.is_active and self._missing_setting is None

    def _epsilon(self, history: list[tuple[float, float, int]]) -> float:
        accountant = _accountant()
        # Equal steps are one entry of the accountant's history.
        accountant.history = history
        return float(accountant.get_epsilon(self.privacy.delta))


def _accountant() -> Any:
    # Imported here, since it takes seconds and only runs with privacy need it.
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UserError(
            f"the privacy budget (dp_args) needs Opacus, which cannot be imported ({error}); install it with: "
            "pip install opacus"
        ) from None
    return RDPAccountant()
