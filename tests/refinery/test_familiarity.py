"""Extensions of the paper: weights of familiar teachers, and the estimated class prior of the server's set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.algorithms.mrtf import ComponentMemory
from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.refinery.class_prior import PRIOR_RATE, balance_classes, floor_prior, update_prior
from mrtf_fedml.refinery.ensemble import entropy, entropy_weights, familiarity_weights
from mrtf_fedml.refinery.teachers import standardize_logits

from .cases import targets_of_logits

ALONE: dict[str, Any] = {"cluster_refinery": False, "self_teaching": False}


def rng_logits(seed: int, clients: int = 4, samples: int = 30, classes: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, samples, classes)) * 3)


def test_familiarity_weights_agree_with_a_second_reading() -> None:
    logits = rng_logits(0)
    given = familiarity_weights(
        standardize_logits(logits), entropy(logits.softmax(dim=-1)), strength=4.0, familiar=0.3
    ).numpy()
    for m in range(logits.shape[1]):
        scores = []
        for k in range(len(logits)):
            f = logits[k].numpy()
            e = np.exp(f[m] - f[m].max())
            q = e / e.sum()
            scores.append(4.0 * 0.3 * f[m].max() / f.std() + 0.7 * float((q * np.log(q)).sum()))
        wanted = np.exp(np.array(scores) - max(scores))
        np.testing.assert_allclose(given[:, m], wanted / wanted.sum(), atol=1e-12)


def test_without_familiarity_they_are_the_papers() -> None:
    logits = rng_logits(1)
    entropies = entropy(logits.softmax(dim=-1))
    assert torch.equal(
        familiarity_weights(standardize_logits(logits), entropies, 4.0, familiar=0.0), entropy_weights(entropies)
    )
    settings: dict[str, Any] = {"cluster_refinery": False, "self_teaching": False}
    entropic = targets_of_logits(logits, 0.0, **settings)
    # A loss of zero leaves nothing to familiarity.
    familiar = targets_of_logits(logits, 0.0, teacher_weighting="familiarity", **settings)
    assert torch.equal(entropic.targets, familiar.targets)


def test_one_who_has_seen_such_samples_outweighs_one_who_is_only_sure() -> None:
    # The first has large logits here and small ones elsewhere; the second is sure of everything by the same margin.
    first = torch.tensor([[9.0, 8.0, 0.0], [1.0, 0.0, 0.0]])
    second = torch.tensor([[0.0, 0.0, 5.0], [0.0, 0.0, 5.0]])
    logits = torch.stack([first, second]).double()
    entropies = entropy((4 * logits / logits.std(dim=(1, 2), keepdim=True)).softmax(dim=-1))
    assert entropy_weights(entropies)[0, 0] < 0.5, "the second is surer"
    assert familiarity_weights(standardize_logits(logits), entropies, 4.0, familiar=1.0)[0, 0] > 0.5


def test_explicit_weighting_overrides_the_preset() -> None:
    assert MrTFSettings(preset="tuned").teacher_weighting == "familiarity"
    assert MrTFSettings(preset="tuned", teacher_weighting="uniform").teacher_weighting == "uniform"


def test_balance_towards_shares_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.5], [0.7, 0.3]], dtype=torch.float64)  # masses 0.6 and 0.4
    balanced = balance_classes(probabilities, 1.0, torch.tensor([0.9, 0.1]))
    first = np.array([0.5 / 0.6 * 0.9, 0.5 / 0.4 * 0.1])
    np.testing.assert_allclose(balanced[0].numpy(), first / first.sum(), atol=1e-7)
    equal = balance_classes(probabilities, 0.5, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(equal, balance_classes(probabilities, 0.5))


def test_prior_follows_predicted_frequencies_and_keeps_a_floor() -> None:
    named = torch.tensor([[0.9, 0.1, 0.0]] * 4, dtype=torch.float64)
    shares = update_prior(None, named, PRIOR_RATE)
    np.testing.assert_allclose(shares.numpy(), [0.8 / 3 + 0.2, 0.8 / 3, 0.8 / 3])
    for _ in range(60):
        shares = update_prior(shares, named, PRIOR_RATE)
    assert shares[0] == pytest.approx(1.0, abs=1e-4)
    floored = floor_prior(shares, classes=3)
    assert float(floored.sum()) == pytest.approx(1.0)
    assert float(floored.min()) == pytest.approx(0.1 / 3 / (1 + 2 * 0.1 / 3), rel=1e-3)


def test_estimated_prior_is_more_accurate_if_classes_are_missing() -> None:
    """Teachers lean to classes that the server does not have, others in every round: equal shares give in to them."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, size=300)
    right: dict[str, float] = {}
    for kind in ("equal", "estimated"):
        memory, hits = ComponentMemory({}), []
        for t in range(20):
            noise = np.random.default_rng(t)
            logits = noise.normal(size=(3, 300, 10))
            logits[:, np.arange(300), labels] += 1.6
            logits[:, :, noise.integers(0, 10, size=2)] += 0.8
            settings: dict[str, Any] = {"class_balance": 0.5, "class_prior": kind, **ALONE}
            made = targets_of_logits(torch.from_numpy(logits), 0.1, memory, **settings)
            hits.append(float((made.targets.argmax(dim=1).numpy() == labels).mean()))
        right[kind] = float(np.mean(hits[-5:]))
    assert right["estimated"] > right["equal"] + 0.1, right


def test_high_loss_does_not_change_the_prior() -> None:
    logits = rng_logits(5)
    memory = ComponentMemory({})
    settings: dict[str, Any] = {"class_balance": 0.5, **ALONE}
    early = targets_of_logits(logits, 99.0, memory, class_prior="estimated", **settings)
    equal = targets_of_logits(logits, 99.0, class_prior="equal", **settings)
    torch.testing.assert_close(early.targets, equal.targets)
    first = memory["class_prior_balance"]["prior"]
    assert first.tolist() == pytest.approx([0.2] * 5)
    targets_of_logits(logits, 0.01, memory, class_prior="estimated", **settings)
    assert not torch.allclose(memory["class_prior_balance"]["prior"], first)
