"""Norms and directions of updates and payloads, compared within a round."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mrtf_fedml.algorithms import ClientUpdate
from mrtf_fedml.training.outliers import EXCLUSION_RATIO, MAX_RATIO, find_culprit, inner_products, screen_updates

START = {"w": torch.ones(4), "frozen": torch.ones(3), "seen": torch.tensor(0)}


def update(client: int, step: float, variate: float | None = None) -> ClientUpdate:
    weights = {"w": torch.ones(4) + step, "frozen": torch.ones(3), "seen": torch.tensor(10**9)}
    payload = {} if variate is None else {"w": torch.full((4,), variate), "counts": torch.tensor([10.0**client])}
    return ClientUpdate(client, 1, weights, None, payload)


def test_updates_within_the_bound_are_the_same_objects() -> None:
    updates = [update(0, 0.1), update(1, 0.2), update(2, 0.2 * MAX_RATIO * 0.99)]
    screening = screen_updates(START, updates)
    assert all(one is other for one, other in zip(screening.updates, updates, strict=True))
    assert not screening.shortened
    assert not screening.excluded


def test_update_beyond_the_bound_is_shortened_to_it_in_its_own_direction() -> None:
    screening = screen_updates(START, [update(0, 0.1), update(1, 0.2), update(2, -0.2 * MAX_RATIO * 2)])
    assert list(screening.shortened) == [2]
    assert not screening.excluded
    torch.testing.assert_close(screening.updates[2].weights["w"], torch.ones(4) - 0.2 * MAX_RATIO)
    assert screening.updates[2].weights["seen"] == 10**9


def test_updates_of_shortened_and_opposed_clients_are_marked() -> None:
    screening = screen_updates(START, [update(0, 0.1), update(1, 0.1), update(2, 0.1 * MAX_RATIO * 2), update(3, -0.1)])
    assert list(screening.shortened) == [2]
    assert list(screening.opposed) == [3]
    assert [(each.is_outlier, each.is_opposed) for each in screening.updates] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
    ]


def test_update_far_beyond_the_bound_is_excluded() -> None:
    screening = screen_updates(START, [update(0, 0.1), update(1, 0.2), update(2, 0.2 * EXCLUSION_RATIO * 1.01)])
    assert list(screening.excluded) == [2]
    assert [each.client for each in screening.updates] == [0, 1]
    assert "e+" in screen_updates(START, [update(0, 0.1), update(1, 0.1), update(2, 3e38)]).excluded[2]


def test_two_updates_are_not_compared_and_the_far_larger_one_is_the_culprit() -> None:
    both = [update(0, 0.1), update(1, 1e30)]
    assert not screen_updates(START, both).excluded
    assert find_culprit(START, both) is both[1]
    assert find_culprit(START, [update(0, 1e30), update(1, 0.9e30)]) is None, "a learning rate that is too high"
    assert find_culprit(START, both[1:]) is None


@pytest.mark.parametrize(
    ("factor", "outcome"), [(-31.0, "excluded"), (1000.0, "excluded"), (-8.0, "shortened"), (2.0, "")]
)
def test_payload_in_the_form_of_weights_is_compared_and_other_entries_are_not(factor: float, outcome: str) -> None:
    updates = [update(client, 0.1, 0.5) for client in range(4)] + [update(4, 0.1, 0.5 * factor)]
    screening = screen_updates(START, updates)
    assert list(screening.excluded) == ([4] if outcome == "excluded" else [])
    assert list(screening.shortened) == ([4] if outcome == "shortened" else [])
    if outcome == "shortened":
        torch.testing.assert_close(screening.updates[4].payload["w"], torch.full((4,), -0.5 * MAX_RATIO))
        assert torch.equal(screening.updates[4].payload["counts"], updates[4].payload["counts"])


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25, 1e36])
def test_screen_updates_is_exact_for_norms_of_any_size(size: float) -> None:
    start = {"w": torch.zeros(4), "steps": torch.tensor(0)}
    updates = [
        ClientUpdate(client, 1, {"w": torch.full((4,), times * size), "steps": torch.tensor(10**9)}, None)
        for client, times in enumerate((1.0, 1.5, 60.0))
    ]
    vectors = [{"w": each.weights["w"]} for each in updates]
    assert float(inner_products(vectors, start)[2, 2].sqrt()) == pytest.approx(120.0 * size)
    assert screen_updates(start, updates).excluded == {2: "its update is 40 times as large as the round's median"}


def vector_update(client: int, vector: list[float], variate: list[float] | None = None) -> ClientUpdate:
    weights = {"w": torch.ones(4) + torch.tensor(vector), "frozen": torch.ones(3), "seen": torch.tensor(client)}
    return ClientUpdate(client, 1, weights, None, {} if variate is None else {"w": torch.tensor(variate)})


AGREEING = ([1.0, 0.2, 0.0, 0.0], [1.0, 0.0, 0.2, 0.0], [1.0, 0.0, 0.0, 0.2], [1.0, -0.1, 0.0, 0.0])


def test_update_against_others_that_agree_is_opposed_and_used() -> None:
    flipped = vector_update(4, [-0.5, 0.1, 0.0, 0.0])
    screening = screen_updates(START, [*(vector_update(*each) for each in enumerate(AGREEING)), flipped])
    assert list(screening.opposed) == [4]
    assert "update" in screening.opposed[4]
    assert len(screening.updates) == 5
    assert not screening.shortened


def test_payload_against_others_that_agree_is_opposed() -> None:
    flipped = vector_update(4, AGREEING[0], [-1.0, 0.0, 0.0, 0.0])
    updates = [vector_update(client, vector, vector) for client, vector in enumerate(AGREEING)]
    screening = screen_updates(START, [*updates, flipped])
    assert list(screening.opposed) == [4]
    assert "payload" in screening.opposed[4]


def test_updates_that_all_point_against_each_other_or_are_zero_are_not_opposed() -> None:
    corners = [[1.0, 1.0, 1.0, 0.0], [1.0, -1.0, -1.0, 0.0], [-1.0, 1.0, -1.0, 0.0], [-1.0, -1.0, 1.0, 0.0]]
    assert screen_updates(START, [vector_update(*each) for each in enumerate(corners)]).opposed == {}
    zero = vector_update(4, [0.0, 0.0, 0.0, 0.0])
    assert screen_updates(START, [*(vector_update(*each) for each in enumerate(AGREEING)), zero]).opposed == {}
    orthogonal = vector_update(4, [0.0, 0.0, 0.0, -1.0])
    assert screen_updates(START, [*(vector_update(*each) for each in enumerate(AGREEING)), orthogonal]).opposed == {}


@pytest.mark.parametrize(("loss", "is_used"), [(1e5, False), (-100.0, False), (29.0, True), (0.0, True)])
def test_loss_far_larger_than_the_others_is_not_used_and_its_client_is_listed(loss: float, is_used: bool) -> None:
    updates = [replace(update(client, 0.1), loss=0.01 * client) for client in range(4)]
    screening = screen_updates(START, [*updates, replace(update(4, 0.1), loss=loss)])
    assert screening.updates[4].loss == (loss if is_used else None)
    assert list(screening.shortened) == ([] if is_used else [4])
