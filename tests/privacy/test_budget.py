"""The budget: composition by the Gaussian mechanism's own formula, and the two views of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mrtf_fedml.privacy import budget as module
from mrtf_fedml.privacy.budget import Charge, PrivacyBudget
from tests.conftest import small_settings


def budget(rounds: list[list[int]], **changes: Any) -> PrivacyBudget:
    """The budget after rounds in which these clients took part."""
    spent = PrivacyBudget(small_settings(**changes))
    for index, clients in enumerate(rounds):
        spent.add(spent.charge_of(index, clients))
    return spent


def composed_epsilon(multipliers: list[float], delta: float) -> float:
    """RDP of the Gaussian mechanism is alpha / (2 z^2) per step; then Canonne, Kamath and Steinke's conversion."""
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    cost = sum(1 / (2 * multiplier**2) for multiplier in multipliers)
    return min(a * cost + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders)


def gaussian_epsilon(multiplier: float, steps: int, delta: float) -> float:
    return composed_epsilon([multiplier] * steps, delta)


def test_the_servers_view_composes_the_busiest_clients_rounds() -> None:
    rounds = [[0, 1], [1, 2], [1, 3], [0, 2]]
    spent = budget(rounds, clip=0.5, sigma=1.0).spent()
    assert spent["epsilon_server"] == pytest.approx(gaussian_epsilon(2.0, 3, 1e-5), rel=1e-6)
    release = spent["epsilon_release"]
    assert isinstance(release, float)
    assert 0 < release < gaussian_epsilon(2.0, 4, 1e-5), "sampling amplifies"


def test_each_charge_is_composed_with_its_own_noise() -> None:
    spent = PrivacyBudget(small_settings(clip=0.5, sigma=4.0))
    # Client 0 took part most often, client 1 with less noise.
    for index, (client, sigma) in enumerate([(0, 2.0), (0, 2.0), (0, 4.0), (1, 0.5), (1, 1.0)]):
        spent.add(Charge(index, (client,), 0.5, sigma, 0.375))
    assert spent.spent()["epsilon_server"] == pytest.approx(composed_epsilon([1.0, 2.0], 1e-5), rel=1e-6)
    release = spent.spent()["epsilon_release"]
    assert isinstance(release, float)
    assert release > budget([[0]] * 5, clip=0.5, sigma=4.0).spent()["epsilon_release"], "the noise of then, not of now"


def test_a_round_costs_the_account_the_same_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    spent, asked = budget([[0, 1]] * 400, clip=0.5, sigma=4.0), []
    accountant = module._accountant

    def counted() -> Any:
        asked.append(accountant())
        return asked[-1]

    monkeypatch.setattr(module, "_accountant", counted)
    assert spent.spent()["epsilon_server"] == pytest.approx(gaussian_epsilon(8.0, 400, 1e-5), rel=1e-6)
    assert [len(one.history) for one in asked] == [1, 1], "400 equal steps are one entry"


def test_one_charge_without_a_bound_leaves_nothing_to_claim() -> None:
    for clip, sigma in ((None, 0.1), (1.0, 0.0), (None, 0.0)):
        spent = budget([[0]], clip=1.0, sigma=1.0)
        spent.add(Charge(1, (3,), clip, sigma, 0.375))
        assert set(spent.spent().values()) == {"none"}
    off = PrivacyBudget(small_settings())
    off.add(Charge(0, (0,), 1.0, 1.0, 0.375))
    assert set(off.spent().values()) == {"none"}, "it was on before"


def test_the_budget_grows_with_rounds_and_shrinks_with_noise() -> None:
    def epsilon(sigma: float, rounds: int) -> float:
        return float(budget([[0]] * rounds, clip=1.0, sigma=sigma).spent()["epsilon_server"])  # type: ignore[arg-type]

    assert epsilon(1.0, 0) == 0.0
    assert epsilon(1.0, 1) < epsilon(1.0, 5)
    assert epsilon(2.0, 5) < epsilon(1.0, 5)


@pytest.mark.parametrize(("changes", "missing"), [({"sigma": 0.1}, "dp_args.clip"), ({"clip": 1.0}, "dp_args.sigma")])
def test_half_of_a_guarantee_is_none_and_said_aloud(
    changes: dict[str, float], missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    half = budget([[0]], **changes)
    assert missing in caplog.text
    assert set(half.spent().values()) == {"none"}
    assert half.summary()["epsilon_server"] == "none"


def test_without_privacy_nothing_is_told() -> None:
    plain = budget([])
    assert set(plain.spent().values()) == {None}
    assert plain.summary() == {}
