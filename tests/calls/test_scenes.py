"""Whole scenes that mislead, and scenes that are fine: no wrong label in silence, and no cry without need."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

import mrtf_fedml

DIGITS = load_digits()
ORDER = np.random.default_rng(0).permutation(len(DIGITS.target))
X, Y = DIGITS.images[ORDER].astype(np.float32) / 8 - 1, DIGITS.target[ORDER]
SERVER = slice(1200, 1500)
QUICK: dict[str, Any] = {"rounds": 5, "epochs": 5, "hidden_size": 64, "refine_steps": 30, "threads": 1}


def clients(labels: Any = Y) -> list[tuple[Any, Any]]:
    """Six, each with all classes."""
    return [(X[:1200][place::6], labels[:1200][place::6]) for place in range(6)]


def warnings_of(x_server: Any, own: list[tuple[Any, Any]], **changes: Any) -> str:
    return " ".join(mrtf_fedml.label(x_server, own, progress=False, **QUICK | changes).warnings)


def test_a_good_scene_is_quiet() -> None:
    result = mrtf_fedml.label(X[SERVER], clients(), progress=False, y_server=Y[SERVER], **QUICK)
    assert result.warnings == []
    assert result.accuracy > 0.8


def test_a_server_of_another_domain_is_told() -> None:
    assert "are unlike any of the clients'" in warnings_of(-X[SERVER][:, ::-1].copy(), clients())


def test_an_estimate_of_other_samples_is_told_as_that() -> None:
    alike = mrtf_fedml.label(X[SERVER], clients(), progress=False, **QUICK)
    assert alike.summary["estimated_on"] == "samples of their own"
    # Paler and blurred, as another scanner would have it: the estimate is no longer of such samples.
    paler = (X[SERVER] + np.roll(X[SERVER], 1, axis=2)) / 2 * 0.7
    other = mrtf_fedml.label(paler, clients(), progress=False, **QUICK)
    assert other.summary["estimated_accuracy"] > 0.8
    told = "(by the clients, on samples of their own, which differ from yours)"
    assert told in repr(other)
    assert "estimate on samples of their own, which differ from yours" in other.report.html


def test_where_refining_does_not_help_the_average_answers_and_that_is_told() -> None:
    # Clients who have all classes, and one class to refine on, by far too large steps: all else is forgotten.
    threes, large = X[Y == 3][:60], {"refine_lr": 0.01}
    result = mrtf_fedml.label(threes, clients(), progress=False, **QUICK | large)
    assert "refining may not help here" in repr(result)
    assert result.warnings == []
    assert result.notes[0] in result.report.html
    told = warnings_of(threes, clients(), answer="refined", **large)
    assert "worse than the plain average of theirs" in told, "now the worse one answers"


def test_where_refining_helps_nothing_is_said() -> None:
    by_class = np.array_split(np.argsort(Y[:1200], kind="stable"), 4)
    own = [(X[places], Y[places]) for places in by_class]
    result = mrtf_fedml.label(X[SERVER], own, progress=False, y_server=Y[SERVER], **QUICK | {"rounds": 8})
    assert result.metrics["acc_refined"].iloc[-1] > result.metrics["acc_aggregated"].iloc[-1] + 0.05
    assert (result.warnings, result.notes) == ([], [])


def test_a_client_whose_labels_are_shifted_by_one_is_named() -> None:
    (x, y), *others = clients()
    assert "the model of client 0 contradicts the others'" in warnings_of(X[SERVER], [(x, (y + 1) % 10), *others])


def test_two_classes_swapped_at_half_of_the_clients_are_named() -> None:
    swapped = Y.copy()
    swapped[Y == 3], swapped[Y == 8] = 8, 3
    told = warnings_of(X[SERVER], [*clients(swapped)[:3], *clients()[3:]])
    assert "of two minds" in told
    assert "'3'" in told


def test_labels_that_mean_nothing_are_told() -> None:
    told = warnings_of(X[SERVER], clients(np.random.default_rng(1).permutation(Y)))
    assert "learnt nearly nothing" in told or "contradict each other" in told


def test_a_class_that_no_client_knows_is_told() -> None:
    few = [(x[y < 7], y[y < 7]) for x, y in clients()]
    assert "are unlike any of the clients'" in warnings_of(X[SERVER], few)


def test_columns_in_another_order_are_told_though_each_has_the_same_spread() -> None:
    table = load_breast_cancer()
    rows = np.random.default_rng(0).permutation(len(table.target))
    x, y = ((table.data - table.data.mean(axis=0)) / table.data.std(axis=0))[rows], table.target[rows]
    own = [(x[150:][place::5], y[150:][place::5]) for place in range(5)]
    assert warnings_of(x[:150], own) == ""
    assert "the order of columns" in warnings_of(x[:150, np.random.default_rng(0).permutation(30)], own)


def test_a_server_of_one_class_is_quiet_and_a_model_that_knows_one_class_is_told() -> None:
    threes = X[Y == 3][:60]
    assert warnings_of(threes, clients()) == ""
    assert "100% of the samples are labelled" in warnings_of(X[SERVER], clients(), learning_rate=5.0)


def test_a_class_too_rare_at_the_clients_to_be_learnt_is_told() -> None:
    # Two features that tell little, and one sample of forty of the second class: the model learns to say the first.
    rows = np.random.default_rng(0)
    y = rows.integers(0, 2, 4000)
    x = rows.normal(size=(4000, 2)) + 0.7 * y[:, None]
    held = (y[:3600] == 0) | (np.arange(3600) % 40 == 0)
    own = [(x[:3600][held][place::5], y[:3600][held][place::5]) for place in range(5)]
    assert "of the clients' own samples of '1' this model finds 0%" in warnings_of(x[3600:], own)
    even = [(x[:600][place::5], y[:600][place::5]) for place in range(5)]
    assert "this model finds" not in warnings_of(x[3600:], even)


def test_too_few_rounds_are_told_by_the_nearest_samples() -> None:
    told = warnings_of(X[SERVER], clients(), rounds=1, learning_rate=0.002)
    assert "are likely to be wrong; train for more rounds" in told
