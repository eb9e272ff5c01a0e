"""Median and trimmed mean of the teachers, against clients that lie."""

from __future__ import annotations

import numpy as np
import torch

from mrtf_fedml.refinery import distillation_targets
from mrtf_fedml.refinery.teachers import average_probabilities, trimmed_mean

from .cases import complete_case


def test_a_weighted_median_by_hand() -> None:
    # In order 1, 2, 5 with weights 0.2, 0.2, 0.6: the middle of the line lies in the third piece.
    values = torch.tensor([5.0, 1.0, 2.0], dtype=torch.float64).reshape(3, 1, 1)
    weights = torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64)
    assert trimmed_mean(values, weights, 0.5).item() == 5.0
    # Between 0.3 and 0.7 lie 0.1 of the 2 and 0.3 of the 5: (0.2 + 1.5) / 0.4.
    assert abs(trimmed_mean(values, weights, 0.3).item() - 4.25) < 1e-12


def test_agrees_with_numpy_where_weights_are_equal() -> None:
    rng = np.random.default_rng(0)
    for clients in (1, 2, 5, 8):
        values = rng.normal(size=(clients, 7, 3))
        ours = trimmed_mean(torch.tensor(values), torch.ones(clients), 0.5)
        np.testing.assert_allclose(ours.numpy(), np.median(values, axis=0), atol=1e-9)
        kept = np.sort(values, axis=0)[1:-1] if clients > 2 else values
        trim = 1 / clients if clients > 2 else 0.0
        ours = trimmed_mean(torch.tensor(values), torch.ones(clients), trim)
        np.testing.assert_allclose(ours.numpy(), kept.mean(axis=0), atol=1e-9)


def test_probabilities_stay_probabilities_and_nothing_named_is_nothing_known() -> None:
    sure = torch.eye(3).unsqueeze(1)
    torch.testing.assert_close(average_probabilities(sure, torch.ones(3), 0.5), torch.full((1, 3), 1 / 3))
    case = complete_case(3)
    for teacher_average in ("mean", "median", "trimmed"):
        for teacher in ("avg_prob", "avg_logit"):
            switches = {"teacher_average": teacher_average, "teacher": teacher}
            given = (case.local_logits, case.global_logits, None, case.local_loss)
            ensemble = distillation_targets(*given, switches).ensemble
            torch.testing.assert_close(ensemble.sum(dim=1), torch.ones(11, dtype=torch.float64))


def test_a_third_that_lies_is_outvoted() -> None:
    """Six honest teachers of all classes, and three that shift every label and shout."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (200,), generator=generator)
    named = torch.stack([truth] * 6 + [(truth + 1) % 5] * 3)
    logits = torch.nn.functional.one_hot(named, 5) + 0.5 * torch.randn(9, 200, 5, generator=generator)
    logits[6:] += 3 * torch.nn.functional.one_hot(named[6:], 5)
    right = {}
    for teacher_average in ("mean", "median", "trimmed"):
        settings = {"teacher_average": teacher_average, "self_teaching": False, "cluster_refinery": False}
        targets = distillation_targets(logits, None, None, 0.5, settings).probabilities
        right[teacher_average] = (targets.argmax(dim=1) == truth).double().mean().item()
    assert right["mean"] < 0.75
    assert right["median"] > 0.85
    assert right["trimmed"] > 0.85
