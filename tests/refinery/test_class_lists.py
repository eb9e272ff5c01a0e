"""Teachers with class lists of their own: no vote is not a vote against a class."""

from __future__ import annotations

import math

import torch

from mrtf_fedml.refinery.class_lists import (
    combine_by_known_classes,
    pairwise_agreement,
    relative_entropy_weights,
    reliability,
)
from mrtf_fedml.refinery.ensemble import average_probabilities


def test_complete_class_lists_give_the_weighted_average() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64).softmax(dim=2)
    weights = torch.rand(3, 5, generator=generator, dtype=torch.float64)
    combined = combine_by_known_classes(q, torch.ones(3, 4, dtype=torch.bool), weights)
    torch.testing.assert_close(combined, average_probabilities(q, weights))


def test_consistent_teachers_of_some_classes_give_the_distribution_of_all() -> None:
    p = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.1, 0.3, 0.5]], dtype=torch.float64)
    known = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]).bool()
    q = torch.stack([p * mask for mask in known])
    q = q / q.sum(dim=2, keepdim=True)
    combined = combine_by_known_classes(q, known, torch.tensor([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]]).double())
    torch.testing.assert_close(combined, p, atol=1e-9, rtol=0)


def test_certain_specialist_does_not_outvote_teachers_that_know_more() -> None:
    specialist = torch.tensor([[1.0, 0.0, 0.0]])
    general = torch.tensor([[0.01, 0.01, 0.98]])
    known = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
    combined = combine_by_known_classes(torch.stack([specialist, general, general]), known, torch.ones(3, 1))
    assert int(combined.argmax()) == 2


def test_entropy_is_relative_to_the_teachers_own_classes() -> None:
    q = torch.tensor([[[0.5, 0.5, 0.0, 0.0]], [[0.25, 0.25, 0.25, 0.25]]], dtype=torch.float64)
    known = torch.tensor([[True, True, False, False], [True, True, True, True]])
    torch.testing.assert_close(relative_entropy_weights(q, known), torch.full((2, 1), 0.5, dtype=torch.float64))


def test_agreement_is_that_of_samples_where_both_know_the_predicted_class() -> None:
    known = torch.tensor([[True, True, False], [True, True, True]])
    kappa = pairwise_agreement(torch.tensor([[0, 1, 0, 1], [0, 1, 2, 2]]), known)
    assert float(kappa[0, 1]) == 1.0
    assert math.isnan(float(kappa[0, 0]))


def test_two_teachers_or_none_in_agreement_keep_their_weight() -> None:
    nan = math.nan
    assert reliability(torch.tensor([[nan, 0.0], [0.0, nan]])).tolist() == [1.0, 1.0]
    assert reliability(torch.full((3, 3), nan)).tolist() == [1.0, 1.0, 1.0]
