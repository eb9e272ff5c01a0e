"""Validation of a client's payload: an invalid one excludes the client, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mrtf_fedml.algorithms import ClientUpdate, ServerState, build_algorithm
from mrtf_fedml.algorithms.mrtf.client_validation import COUNTS
from mrtf_fedml.training.round import RoundTasks, validate_replies
from tests.conftest import small_settings

WEIGHTS = {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}
#: What the server sends to FedAUX's clients in the second round.
MEMORY = {"fedaux/mean": torch.zeros(4), "fedaux/deviation": torch.ones(4)}
DENSITY = {"shares": torch.ones(1), "means": torch.zeros(1, 4), "variance": torch.ones(4)}


def excluded_clients(algorithm: str, extra: dict[str, Any], **settings: Any) -> dict[int, str]:
    if algorithm == "MrTF":
        settings = {"client_validation": True, **settings}
    rules = build_algorithm(small_settings(federated_optimizer=algorithm, **settings))
    state = ServerState(1, WEIGHTS, WEIGHTS, MEMORY)
    tasks = RoundTasks(rules, state, [4])
    return validate_replies(tasks, [ClientUpdate(4, 10, WEIGHTS, 0.5, extra)]).excluded_clients


@pytest.mark.parametrize(
    ("algorithm", "extra"),
    [
        ("Scaffold", {"weight": torch.zeros(2, 3)}),
        ("FedAUX", {"certainty": torch.zeros(5)}),
        ("UWA", DENSITY),
        ("MrTF", {COUNTS: torch.tensor([5, 3, 4])}),
        ("FedAvg", {"anything": torch.zeros(7)}),
    ],
)
def test_valid_or_missing_payload_is_accepted(algorithm: str, extra: dict[str, Any]) -> None:
    assert excluded_clients(algorithm, extra) == {}
    assert excluded_clients(algorithm, {}) == {}, "a payload is optional"


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
        ("MrTF", {COUNTS: torch.tensor([5, 6, 4])}, "its validation counts"),
        ("MrTF", {COUNTS: torch.tensor([5, -1, 4])}, "its validation counts"),
        ("MrTF", {COUNTS: torch.full((3,), 2**60)}, "its validation counts"),
        ("MrTF", {COUNTS: torch.zeros(2)}, "its validation counts"),
    ],
)
def test_invalid_payload_excludes_the_client_with_a_reason(algorithm: str, extra: dict[str, Any], reason: str) -> None:
    assert reason in excluded_clients(algorithm, extra)[4]


def test_mrtf_validates_the_payload_of_its_base() -> None:
    assert "its variate 'mine'" in excluded_clients("MrTF", {"mine": torch.zeros(2)}, base="Scaffold")[4]
