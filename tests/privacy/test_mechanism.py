"""Clipping and noise on an update, by hand and by statistics."""

from __future__ import annotations

import pytest
import torch

from mrtf_fedml.algorithms import Scaffold
from mrtf_fedml.errors import UserError
from mrtf_fedml.privacy.mechanism import LEAST_VARIANCE, noise_generator, protected
from mrtf_fedml.settings import PrivacySettings
from tests.conftest import small_settings


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_clipping_takes_the_norm_of_the_whole_update() -> None:
    start = {"a": torch.ones(1), "b": torch.ones(2), "count": torch.tensor(5)}
    weights = {"a": torch.tensor([3.0]), "b": torch.tensor([3.0, 2.0]), "count": torch.tensor(9)}
    # The update is (2, 2, 1), of norm 3; a third of it is left.
    sent = protected(start, weights, PrivacySettings(clip=1.0), generator())
    torch.testing.assert_close(sent["a"], torch.tensor([1 + 2 / 3]))
    torch.testing.assert_close(sent["b"], torch.tensor([1 + 2 / 3, 1 + 1 / 3]))
    assert sent["count"].item() == 5, "a counter tells how many batches the client has"
    same = protected(start, weights, PrivacySettings(clip=3.0), generator())
    assert torch.equal(same["b"], weights["b"]), "an update within the bound is left as it is"
    assert weights["count"].item() == 9


def test_noise_has_the_absolute_deviation_that_was_asked_for() -> None:
    start = {"w": torch.zeros(40_000)}
    weights = {"w": torch.full((40_000,), 0.5)}
    sent = protected(start, weights, PrivacySettings(sigma=0.1), generator())["w"]
    assert sent.mean().item() == pytest.approx(0.5, abs=0.003)
    assert sent.std().item() == pytest.approx(0.1, rel=0.03)
    again = protected(start, weights, PrivacySettings(sigma=0.1), generator())["w"]
    assert torch.equal(sent, again)
    assert not torch.equal(sent, protected(start, weights, PrivacySettings(sigma=0.1), generator(1))["w"])


def test_running_variances_stay_positive() -> None:
    start = {"norm.running_var": torch.full((1000,), 0.01), "norm.running_mean": torch.zeros(1000)}
    sent = protected(start, start, PrivacySettings(sigma=1.0), generator())
    assert sent["norm.running_var"].min().item() == pytest.approx(LEAST_VARIANCE)
    assert sent["norm.running_mean"].min().item() < 0


def test_noise_is_shared_with_nobody_but_in_a_simulation() -> None:
    def drawn(**changes: str) -> float:
        return torch.randn((), generator=noise_generator(small_settings(**changes), client=1, round_index=2)).item()

    assert drawn() == drawn()
    assert drawn(training_type="cross_silo") != drawn(training_type="cross_silo")


def test_scaffold_with_privacy_is_refused() -> None:
    with pytest.raises(UserError, match="without noise"):
        Scaffold(small_settings(clip=1.0, sigma=0.1))


def test_ours_and_fedmls_privacy_do_not_act_together() -> None:
    assert not small_settings(enable_dp=True, sigma=0.1).privacy.active
    with pytest.raises(UserError, match="cannot act together"):
        small_settings(enable_dp=True, clip=1.0)
