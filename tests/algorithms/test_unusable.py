"""What a client tells beside its weights, and no algorithm could bear: it is left out by that reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mrtf_fedml.algorithms import ClientUpdate, ServerState, algorithm_of
from mrtf_fedml.algorithms.votes import VOTES
from mrtf_fedml.rounds.round import Handout, sorted_out
from tests.conftest import small_settings

WEIGHTS = {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}
#: What FedAUX's clients of the second round were told.
MEMORY = {"fedaux/mean": torch.zeros(4), "fedaux/deviation": torch.ones(4)}
DENSITY = {"shares": torch.ones(1), "means": torch.zeros(1, 4), "variance": torch.ones(4)}


def left_out(algorithm: str, extra: dict[str, Any], **settings: Any) -> dict[int, str]:
    rules = algorithm_of(small_settings(federated_optimizer=algorithm, **settings))
    state = ServerState(1, WEIGHTS, WEIGHTS, MEMORY)
    return sorted_out(state, Handout(rules, state, [4]), [ClientUpdate(4, 10, WEIGHTS, 0.5, extra)]).left_out


@pytest.mark.parametrize(
    ("algorithm", "extra"),
    [
        ("Scaffold", {"weight": torch.zeros(2, 3)}),
        ("FedAUX", {"certainty": torch.zeros(5)}),
        ("UWA", DENSITY),
        ("MrTF", {VOTES: torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64)}),
        ("FedAvg", {"anything": torch.zeros(7)}),
    ],
)
def test_what_is_well_is_used(algorithm: str, extra: dict[str, Any]) -> None:
    assert left_out(algorithm, extra) == {}
    assert left_out(algorithm, {}) == {}, "nor is anybody bound to tell"


@pytest.mark.parametrize(
    ("algorithm", "extra", "reason"),
    [
        ("Scaffold", {"mine": torch.zeros(2)}, "its variate 'mine'"),
        ("Scaffold", {"bias": torch.zeros(3)}, "its variate 'bias'"),
        ("Scaffold", {"bias": torch.zeros(2, dtype=torch.int64)}, "its variate 'bias'"),
        ("FedAUX", {"certainty": torch.zeros(4)}, "its certainty"),
        ("FedAUX", {"certainty": torch.zeros(5, 1)}, "its certainty"),
        ("UWA", {**DENSITY, "shares": torch.ones(2)}, "no density"),
        ("UWA", {**DENSITY, "variance": torch.zeros(4)}, "no density"),
        ("UWA", {**DENSITY, "means": torch.zeros(())}, "no density"),
        ("UWA", {"shares": torch.ones(0), "means": torch.zeros(0, 4), "variance": torch.ones(4)}, "no density"),
        ("MrTF", {VOTES: torch.tensor([6.0, 4.0, 5.0])}, "its votes"),
        ("MrTF", {VOTES: torch.tensor([-1.0, 4.0, 5.0])}, "its votes"),
        ("MrTF", {VOTES: torch.tensor([1e200, 1e200, 1e200], dtype=torch.float64)}, "its votes"),
        ("MrTF", {VOTES: torch.zeros(2)}, "its votes"),
    ],
)
def test_what_cannot_be_borne_is_left_out_by_name(algorithm: str, extra: dict[str, Any], reason: str) -> None:
    assert reason in left_out(algorithm, extra)[4]


def test_a_base_is_asked_too() -> None:
    assert "its variate 'mine'" in left_out("MrTF", {"mine": torch.zeros(2)}, base="Scaffold")[4]
