"""Clipping and noise of an update, against manual results and statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from mrtf_fedml.algorithms import Scaffold
from mrtf_fedml.config import PrivacySettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.privacy.mechanism import MIN_VARIANCE, Noise, client_noise, protect_update, system_noise
from tests.conftest import small_settings


def seeded_noise(seed: int = 0) -> Noise:
    generator = torch.Generator().manual_seed(seed)
    return lambda shape: torch.randn(tuple(shape), generator=generator, dtype=torch.float64)


def test_protect_update_clips_norm_of_whole_update() -> None:
    start = {"a": torch.ones(1), "b": torch.ones(2), "count": torch.tensor(5)}
    weights = {"a": torch.tensor([3.0]), "b": torch.tensor([3.0, 2.0]), "count": torch.tensor(9)}
    # The update is (2, 2, 1), of norm 3; it is scaled by a third.
    sent = protect_update(start, weights, PrivacySettings(clip=1.0), seeded_noise())
    torch.testing.assert_close(sent["a"], torch.tensor([1 + 2 / 3]))
    torch.testing.assert_close(sent["b"], torch.tensor([1 + 2 / 3, 1 + 1 / 3]))
    assert sent["count"].item() == 5, "a counter would reveal the number of batches"
    same = protect_update(start, weights, PrivacySettings(clip=3.0), seeded_noise())
    assert torch.equal(same["b"], weights["b"]), "an update within the bound is unchanged"
    assert weights["count"].item() == 9


def test_protect_update_noise_has_standard_deviation_sigma() -> None:
    start = {"w": torch.zeros(40_000)}
    weights = {"w": torch.full((40_000,), 0.5)}
    sent = protect_update(start, weights, PrivacySettings(sigma=0.1), seeded_noise())["w"]
    assert sent.mean().item() == pytest.approx(0.5, abs=0.003)
    assert sent.std().item() == pytest.approx(0.1, rel=0.03)
    again = protect_update(start, weights, PrivacySettings(sigma=0.1), seeded_noise())["w"]
    assert torch.equal(sent, again)
    assert not torch.equal(sent, protect_update(start, weights, PrivacySettings(sigma=0.1), seeded_noise(1))["w"])


def test_protect_update_keeps_running_variances_positive() -> None:
    start = {"norm.running_var": torch.full((1000,), 0.01), "norm.running_mean": torch.zeros(1000)}
    sent = protect_update(start, start, PrivacySettings(sigma=1.0), seeded_noise())
    assert sent["norm.running_var"].min().item() == pytest.approx(MIN_VARIANCE)
    assert sent["norm.running_mean"].min().item() < 0


def test_client_noise_is_seeded_only_in_simulation() -> None:
    def draw(**changes: str) -> float:
        return client_noise(small_settings(**changes), client=1, round_index=2)((1,)).item()

    assert draw() == draw()
    assert draw(training_type="cross_silo") != draw(training_type="cross_silo")


def test_system_noise_is_standard_gaussian() -> None:
    noise = system_noise((200_001,)).numpy()
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert abs(stats.kurtosis(noise)) < 0.1
    # Both halves come from the same pairs of uniforms: they must not be correlated, nor their squares.
    first, second = noise[:100_000], noise[100_001:]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.03


def test_system_noise_has_the_shape_asked_for() -> None:
    assert [tuple(system_noise(shape).shape) for shape in ((), (0,), (3,), (2, 5))] == [(), (0,), (3,), (2, 5)]
    assert system_noise((3,)).dtype == torch.float64


def find_seed(received: torch.Tensor, seeds: range) -> int | None:
    """The attack of a curious server: the seed of PyTorch's generator, which uses 32 bits, that gives these numbers."""
    for seed in seeds:
        guess = torch.randn(len(received), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        if float((guess - received).abs().max()) < 0.1:
            return seed
    return None


def test_search_of_seeds_finds_seeded_noise_and_not_the_noise_of_a_silo() -> None:
    seeds = range(1 << 12)
    assert find_seed(seeded_noise(4000 + (7 << 32))((16,)), seeds) == 4000, "the high bits of a seed are ignored"
    silo = client_noise(small_settings(training_type="cross_silo"), client=1, round_index=2)
    assert find_seed(silo((16,)), seeds) is None
    # Nothing that a server could set determines it.
    torch.manual_seed(0)
    first = silo((16,))
    torch.manual_seed(0)
    assert not torch.equal(first, silo((16,)))


def test_scaffold_with_privacy_is_rejected() -> None:
    with pytest.raises(UserError, match="without noise"):
        Scaffold(small_settings(clip=1.0, sigma=0.1))


def test_clip_with_enable_dp_is_rejected() -> None:
    assert not small_settings(enable_dp=True, sigma=0.1).privacy.is_active
    with pytest.raises(UserError, match="enable_dp"):
        small_settings(enable_dp=True, clip=1.0)
