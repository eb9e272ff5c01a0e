"""Selection of the clients of a round."""

from __future__ import annotations

import pytest

from mrtf_fedml.algorithms.sampling import select_among, select_clients


@pytest.mark.parametrize(("total", "per_round"), [(1, 1), (7, 1), (7, 3), (7, 7), (3, 5)])
def test_selection_has_the_wanted_number_of_different_clients_in_ascending_order(total: int, per_round: int) -> None:
    for round_index in range(20):
        selected = select_clients(round_index, total, per_round, seed=5)
        assert len(selected) == min(total, per_round)
        assert selected == sorted(set(selected))
        assert set(selected) <= set(range(total))


def test_every_client_is_selected_equally_often() -> None:
    counts = [0] * 5
    for round_index in range(2000):
        for client in select_clients(round_index, total=5, per_round=2, seed=0):
            counts[client] += 1
    # Binomial, 2000 draws with probability 0.4: a standard deviation of 22.
    assert all(abs(count - 800) < 100 for count in counts), counts


def test_draws_of_a_seed_do_not_change_between_versions() -> None:
    assert [select_clients(round_index, 10, 3, seed=1) for round_index in range(3)] == [[4, 7, 8], [1, 2, 7], [2, 3, 8]]


def test_selection_among_available_clients_maps_to_their_numbers() -> None:
    available = [2, 4, 6, 8, 10]
    indices = select_clients(3, len(available), 2, seed=1)
    assert select_among(available, [], 3, 2, seed=1) == [available[index] for index in indices]


def test_other_clients_are_tried_and_none_twice() -> None:
    others = select_among(range(6), selected=[0, 1, 2], round_index=0, per_round=3, seed=1)
    assert others == [3, 4, 5]
    assert select_among(range(3), selected=[0, 1, 2], round_index=0, per_round=3, seed=1) == []
