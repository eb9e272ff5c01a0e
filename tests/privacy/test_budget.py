"""PrivacyBudget: composition by the formula of the Gaussian mechanism, and both epsilons."""

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
        spent.add(spent.make_charge(index, clients))
    return spent


def composed_epsilon(multipliers: list[float], delta: float) -> float:
    """RDP of the Gaussian mechanism is alpha / (2 z^2) per step; then Canonne, Kamath and Steinke's conversion."""
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    cost = sum(1 / (2 * multiplier**2) for multiplier in multipliers)
    return min(a * cost + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders)


def gaussian_epsilon(multiplier: float, steps: int, delta: float) -> float:
    return composed_epsilon([multiplier] * steps, delta)


def test_epsilon_server_composes_rounds_of_most_selected_client() -> None:
    rounds = [[0, 1], [1, 2], [1, 3], [0, 2]]
    spent = budget(rounds, clip=0.5, sigma=1.0).epsilons()
    assert spent["epsilon_server"] == pytest.approx(gaussian_epsilon(2.0, 3, 1e-5), rel=1e-6)
    release = spent["epsilon_release"]
    assert isinstance(release, float)
    assert 0 < release < gaussian_epsilon(2.0, 4, 1e-5), "sampling amplifies"


def test_epsilons_compose_each_charge_with_its_own_noise() -> None:
    spent = PrivacyBudget(small_settings(clip=0.5, sigma=4.0))
    # Client 0 took part most often, client 1 with less noise.
    for index, (client, sigma) in enumerate([(0, 2.0), (0, 2.0), (0, 4.0), (1, 0.5), (1, 1.0)]):
        spent.add(Charge(index, (client,), 0.5, sigma, 0.375))
    assert spent.epsilons()["epsilon_server"] == pytest.approx(composed_epsilon([1.0, 2.0], 1e-5), rel=1e-6)
    release = spent.epsilons()["epsilon_release"]
    assert isinstance(release, float)
    assert release > budget([[0]] * 5, clip=0.5, sigma=4.0).epsilons()["epsilon_release"], (
        "the charge's noise counts, not the current setting"
    )


def test_epsilons_merge_equal_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    spent, accountants = budget([[0, 1]] * 400, clip=0.5, sigma=4.0), []
    accountant = module._accountant

    def count_accountants() -> Any:
        accountants.append(accountant())
        return accountants[-1]

    monkeypatch.setattr(module, "_accountant", count_accountants)
    assert spent.epsilons()["epsilon_server"] == pytest.approx(gaussian_epsilon(8.0, 400, 1e-5), rel=1e-6)
    assert [len(one.history) for one in accountants] == [1, 1], "400 equal steps are one entry"


def test_epsilons_are_none_after_one_unbounded_charge() -> None:
    for clip, sigma in ((None, 0.1), (1.0, 0.0), (None, 0.0)):
        spent = budget([[0]], clip=1.0, sigma=1.0)
        spent.add(Charge(1, (3,), clip, sigma, 0.375))
        assert set(spent.epsilons().values()) == {"none"}
    off = PrivacyBudget(small_settings())
    off.add(Charge(0, (0,), 1.0, 1.0, 0.375))
    assert set(off.epsilons().values()) == {"none"}, "it was on before"


def test_epsilon_grows_with_rounds_and_shrinks_with_noise() -> None:
    def epsilon(sigma: float, rounds: int) -> float:
        return float(budget([[0]] * rounds, clip=1.0, sigma=sigma).epsilons()["epsilon_server"])  # type: ignore[arg-type]

    assert epsilon(1.0, 0) == 0.0
    assert epsilon(1.0, 1) < epsilon(1.0, 5)
    assert epsilon(2.0, 5) < epsilon(1.0, 5)


@pytest.mark.parametrize(("changes", "missing"), [({"sigma": 0.1}, "dp_args.clip"), ({"clip": 1.0}, "dp_args.sigma")])
def test_epsilons_are_none_and_warned_without_clip_or_sigma(
    changes: dict[str, float], missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    half = budget([[0]], **changes)
    assert missing in caplog.text
    assert set(half.epsilons().values()) == {"none"}
    assert half.summary()["epsilon_server"] == "none"


def test_summary_without_privacy_is_empty() -> None:
    plain = budget([])
    assert set(plain.epsilons().values()) == {None}
    assert plain.summary() == {}
