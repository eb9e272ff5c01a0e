"""Clients whose models do not fit the others', for a server that does not know their classes."""

from __future__ import annotations

import torch

from mrtf_fedml.diagnostics.client_consistency import find_suspects, warn_suspects

CLASSES = 5
LABELS = torch.arange(100) % CLASSES
TARGETS = torch.nn.functional.one_hot(LABELS, CLASSES).double()
#: A client with the classes 0 and 1: it knows these, and predicts one of them for all others.
FEW_CLASSES = torch.where(LABELS < 2, LABELS, LABELS % 2)


def suspects(*models: torch.Tensor) -> list[int]:
    return list(find_suspects(torch.stack(models), range(len(models)), TARGETS))


def test_honest_models_of_all_or_few_classes_are_not_suspect() -> None:
    assert suspects(LABELS, LABELS, LABELS, FEW_CLASSES) == []
    assert suspects(LABELS, FEW_CLASSES, FEW_CLASSES, FEW_CLASSES) == []


def test_model_with_rotated_classes_is_suspect() -> None:
    assert suspects(LABELS, LABELS, (LABELS + 1) % CLASSES, FEW_CLASSES) == [2]


def test_model_of_one_class_is_suspect_unless_the_others_are_too() -> None:
    one = torch.zeros_like(LABELS)
    assert suspects(LABELS, one, LABELS, LABELS) == [1]
    assert suspects(one, one + 1, one + 2, LABELS) == []


def test_two_models_have_no_majority() -> None:
    assert suspects(LABELS, (LABELS + 1) % CLASSES) == []


def lines(times: int, rounds: int, first: int = 0) -> list[dict[str, object]]:
    """Of a client that is suspect in `times` rounds from the given one on."""
    flagged = {"suspect_clients": {"4": "it contradicts"}}
    return [{"clients": [3, 4], **(flagged if first <= index < first + times else {})} for index in range(rounds)]


def test_client_is_named_if_it_is_suspect_in_most_of_its_rounds() -> None:
    assert warn_suspects(lines(3, 6)) == []
    assert warn_suspects(lines(1, 1)) == [], "one round is chance"
    (warning,) = warn_suspects(lines(4, 6))
    assert "client 4 " in warning


def test_client_that_is_suspect_in_the_last_two_rounds_is_named() -> None:
    (warning,) = warn_suspects(lines(2, 12, first=10))
    assert "client 4 sends does not fit the others' in 2 of 12 rounds" in warning
    assert warn_suspects(lines(1, 12, first=11)) == []
    longer = [{**line, "outlier_clients": line.get("suspect_clients", {})} for line in lines(2, 12, first=10)]
    assert warn_suspects(longer) == [], "an honest client that still learns has longer updates"
    assert warn_suspects(lines(2, 12, first=9)) == []


def test_many_suspect_clients_are_named_in_one_warning() -> None:
    flagged = {str(client): "it contradicts" for client in range(8)}
    (warning,) = warn_suspects([{"clients": list(range(20)), "suspect_clients": flagged}] * 3)
    assert "suspect_clients" in warning
