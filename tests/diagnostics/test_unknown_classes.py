"""Samples that look like no sample of any client."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mrtf_fedml.diagnostics.unknown_classes import FALSE_FRACTION, find_unknown_samples, select_discoveries

#: Of eight classes.
MEANS = 2 * torch.randn(8, 12, generator=torch.Generator().manual_seed(9))
#: Those that the clients have.
KNOWN = [0, 1, 2, 3, 4, 5]


def draw(classes: list[int], samples: int, seed: int) -> Tensor:
    """Samples [samples, 12] of these classes, which have different means."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(samples, 12, generator=generator) * 0.4
    labels = torch.tensor(classes)[torch.randint(len(classes), (samples,), generator=generator)]
    return rows + MEANS[labels]


def test_samples_of_a_class_that_no_client_has_are_found() -> None:
    clients, known, other = draw(KNOWN, 600, 0), draw(KNOWN, 300, 1), draw([6, 7], 60, 2)
    found = find_unknown_samples(clients, torch.cat([known, other]))
    assert found is not None
    assert found[300:].double().mean() > 0.9
    assert found[:300].sum() <= FALSE_FRACTION * found.sum() * 1.5


def test_samples_of_the_clients_classes_are_rarely_unknown() -> None:
    found = [find_unknown_samples(draw(KNOWN, 600, seed), draw(KNOWN, 300, 100 + seed)) for seed in range(8)]
    assert np.mean([float(each.double().mean()) for each in found if each is not None]) < 0.02


def test_unknown_samples_of_images_are_found() -> None:
    clients, server = draw(KNOWN, 400, 0), torch.cat([draw(KNOWN, 100, 1), draw([7], 30, 2)])
    found = find_unknown_samples(clients.reshape(-1, 1, 3, 4), server.reshape(-1, 1, 3, 4))
    assert found is not None
    assert found[100:].double().mean() > 0.9


def test_too_few_samples_or_indices_cannot_be_compared() -> None:
    assert find_unknown_samples(draw([0], 30, 0), draw([0], 50, 1)) is None
    assert find_unknown_samples(torch.zeros(100, 5, dtype=torch.int64), torch.zeros(100, 5, dtype=torch.int64)) is None


def test_select_discoveries_keeps_the_fraction_of_false_ones() -> None:
    rng, fractions = np.random.default_rng(0), []
    for _ in range(300):
        chosen = select_discoveries(np.concatenate([rng.random(80), rng.random(20) * 1e-3]), 0.2)
        fractions.append(chosen[:80].sum() / max(1, chosen.sum()))
    assert np.mean(fractions) < 0.2
