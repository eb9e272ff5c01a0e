"""Whom to trust beyond the paper: familiar teachers, and the classes that the server's set is thought to have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mrtf_fedml.refinery import distillation_targets
from mrtf_fedml.refinery.rectify import (
    class_balanced,
    confidence_weights,
    entropy,
    familiarity_weights,
)
from mrtf_fedml.refinery.shares import floored_shares, renewed_shares
from mrtf_fedml.settings import MrTFSettings


def rng_logits(seed: int, clients: int = 4, samples: int = 30, classes: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, samples, classes)) * 3)


def test_familiarity_weights_agree_with_a_second_reading() -> None:
    logits = rng_logits(0)
    given = familiarity_weights(logits, entropy(logits.softmax(dim=-1)), strength=4.0, familiar=0.3).numpy()
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
    assert torch.equal(familiarity_weights(logits, entropies, 4.0, familiar=0.0), confidence_weights(entropies))
    settings = {"cluster_refinery": False, "self_teaching": False}
    entropic = distillation_targets(logits, None, None, 0.0, MrTFSettings(**settings))
    # A loss of zero leaves nothing to familiarity.
    familiar = distillation_targets(logits, None, None, 0.0, MrTFSettings(teacher_weights="familiarity", **settings))
    assert torch.equal(entropic.probabilities, familiar.probabilities)


def test_one_who_has_seen_such_samples_outweighs_one_who_is_only_sure() -> None:
    # The first has large logits here and small ones elsewhere; the second is sure of everything by the same margin.
    first = torch.tensor([[9.0, 8.0, 0.0], [1.0, 0.0, 0.0]])
    second = torch.tensor([[0.0, 0.0, 5.0], [0.0, 0.0, 5.0]])
    logits = torch.stack([first, second]).double()
    entropies = entropy((4 * logits / logits.std(dim=(1, 2), keepdim=True)).softmax(dim=-1))
    assert confidence_weights(entropies)[0, 0] < 0.5, "the second is surer"
    assert familiarity_weights(logits, entropies, 4.0, familiar=1.0)[0, 0] > 0.5


def test_the_switch_of_the_paper_overrides_a_preset() -> None:
    assert MrTFSettings(preset="tuned").teacher_weights == "familiarity"
    assert MrTFSettings(preset="tuned", entropy_weights=False).teacher_weights == "uniform"
    assert MrTFSettings(preset="tuned", entropy_weights=True).teacher_weights == "entropy"
    assert MrTFSettings(entropy_weights=False, teacher_weights="familiarity").teacher_weights == "familiarity"


def test_balance_towards_shares_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.5], [0.7, 0.3]], dtype=torch.float64)  # masses 0.6 and 0.4
    balanced = class_balanced(probabilities, 1.0, torch.tensor([0.9, 0.1]))
    first = np.array([0.5 / 0.6 * 0.9, 0.5 / 0.4 * 0.1])
    np.testing.assert_allclose(balanced[0].numpy(), first / first.sum(), atol=1e-7)
    equal = class_balanced(probabilities, 0.5, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(equal, class_balanced(probabilities, 0.5))


def test_shares_follow_what_is_named_and_keep_a_floor() -> None:
    named = torch.tensor([[0.9, 0.1, 0.0]] * 4, dtype=torch.float64)
    shares = renewed_shares(None, named, learnt=1.0)
    np.testing.assert_allclose(shares.numpy(), [0.8 / 3 + 0.2, 0.8 / 3, 0.8 / 3])
    for _ in range(60):
        shares = renewed_shares(shares, named, learnt=1.0)
    assert shares[0] == pytest.approx(1.0, abs=1e-4)
    floored = floored_shares(shares, classes=3)
    assert float(floored.sum()) == pytest.approx(1.0)
    assert float(floored.min()) == pytest.approx(0.1 / 3 / (1 + 2 * 0.1 / 3), rel=1e-3)


def test_a_missing_class_is_not_invented() -> None:
    """Teachers lean to classes that the server does not have, others in every round: equal shares give in to them."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, size=300)
    right: dict[str, float] = {}
    for kind in ("equal", "estimated"):
        settings = MrTFSettings(class_balance=0.5, class_shares=kind, cluster_refinery=False, self_teaching=False)
        shares, hits = None, []
        for t in range(20):
            noise = np.random.default_rng(t)
            logits = noise.normal(size=(3, 300, 10))
            logits[:, np.arange(300), labels] += 1.6
            logits[:, :, noise.integers(0, 10, size=2)] += 0.8
            made = distillation_targets(torch.from_numpy(logits), None, None, 0.1, settings, shares=shares)
            shares = made.shares
            hits.append(float((made.probabilities.argmax(dim=1).numpy() == labels).mean()))
        right[kind] = float(np.mean(hits[-5:]))
    assert right["estimated"] > right["equal"] + 0.1, right


def test_who_knows_little_does_not_move_the_shares() -> None:
    logits = rng_logits(5)
    settings = MrTFSettings(class_balance=0.5, class_shares="estimated", cluster_refinery=False, self_teaching=False)
    early = distillation_targets(logits, None, None, 99.0, settings)
    equal = distillation_targets(logits, None, None, 99.0, replace(settings, class_shares="equal"))
    torch.testing.assert_close(early.probabilities, equal.probabilities)
    assert equal.shares is None
    assert early.shares is not None
    assert early.shares.tolist() == pytest.approx([0.2] * 5)
    late = distillation_targets(logits, None, None, 0.01, settings, shares=early.shares)
    assert late.shares is not None
    assert not torch.allclose(late.shares, early.shares)
