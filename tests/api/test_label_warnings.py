"""Runs on misleading data get a warning; runs on ordinary data get none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, make_classification

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


def test_label_of_a_good_setup_gives_no_warning() -> None:
    result = mrtf_fedml.label(X[SERVER], clients(), progress=False, y_server=Y[SERVER], **QUICK)
    assert result.warnings == []
    assert result.accuracy > 0.8


def test_label_warns_of_another_domain() -> None:
    assert "are unlike all of the clients'" in warnings_of(-X[SERVER][:, ::-1].copy(), clients())


def test_label_states_no_estimate_if_the_servers_samples_differ() -> None:
    alike = mrtf_fedml.label(X[SERVER], clients(), progress=False, **QUICK)
    estimated, (low, high) = (alike.summary[key] for key in ("estimated_accuracy", "estimated_accuracy_interval"))
    assert low <= float(np.mean(alike.labels == Y[SERVER])) <= high, "the interval contains the true accuracy"
    assert estimated > 0.8
    text = f"{estimated:.2f} (95% interval {low:.2f} to {high:.2f})"
    assert f"estimated accuracy {text}" in repr(alike)
    assert text in alike.report.html
    # Paler and blurred, as another scanner would have it: the estimate is no longer of such samples.
    paler = (X[SERVER] + np.roll(X[SERVER], 1, axis=2)) / 2 * 0.7
    other = mrtf_fedml.label(paler, clients(), progress=False, **QUICK)
    assert other.summary["estimated_accuracy"] is None
    assert "no estimate: the server's samples differ from the clients'" in repr(other)
    assert "no estimate: the server" in other.report.html


def informative_table() -> tuple[Any, Any]:
    """1500 samples of four classes, standardized."""
    x, y = make_classification(1500, 20, n_informative=8, n_classes=4, random_state=0)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def breast_cancer() -> tuple[Any, Any]:
    """569 samples of two classes, standardized, in random order."""
    table, rows = load_breast_cancer(), np.random.default_rng(0).permutation(569)
    return ((table.data - table.data.mean(axis=0)) / table.data.std(axis=0))[rows], table.target[rows]


@pytest.mark.parametrize("table", [informative_table, breast_cancer])
@pytest.mark.parametrize("change", ["0.6 deviations", "0.9 deviations", "leaked label", "19 rows"])
def test_label_states_no_number_that_is_far_off_without_a_warning(
    table: Callable[[], tuple[Any, Any]], change: str
) -> None:
    x, y = table()
    server, own_x, own_y = x[:300], x[300:], y[300:]
    if change.endswith("deviations"):
        server = server + float(change.split()[0])
    elif change == "leaked label":
        noise = np.random.default_rng(1).permutation(own_y)[:, None]
        server = np.hstack([server, np.resize(noise, (300, 1))])
        own_x = np.hstack([own_x, own_y[:, None]])
    else:
        server = server[:19] + 1.5
    own = [(own_x[place::5], own_y[place::5]) for place in range(5)]
    result = mrtf_fedml.label(server, own, progress=False, y_server=y[: len(server)], **QUICK)
    stated = result.summary["estimated_accuracy"]
    assert stated is None or result.warnings or abs(stated - result.accuracy) <= 0.15
    assert (stated is None) == (result.summary["no_estimate_because"] is not None)


def test_label_predicts_with_the_average_where_refinement_does_not_help() -> None:
    # Clients who have all classes, and one class to refine on, by far too large steps: all else is forgotten.
    threes, large = X[Y == 3][:60], {"refine_lr": 0.01}
    result = mrtf_fedml.label(threes, clients(), progress=False, **QUICK | large)
    assert "refining may not help" in repr(result)
    assert result.warnings == []
    assert "Refining may not help on these data" in result.report.html, "with a capital letter"
    warnings = warnings_of(threes, clients(), predict_with="refined", **large)
    assert "less accurate than the aggregated one" in warnings, "the worse model predicts"


def test_label_gives_no_note_where_refinement_helps() -> None:
    by_class = np.array_split(np.argsort(Y[:1200], kind="stable"), 4)
    own = [(X[places], Y[places]) for places in by_class]
    # On FedAvg without momentum: with either, the average is nearly as good as the refined model here.
    changes = QUICK | {"rounds": 8, "base": "FedAvg", "loss_momentum": False}
    result = mrtf_fedml.label(X[SERVER], own, progress=False, y_server=Y[SERVER], **changes)
    assert result.metrics["acc_refined"].iloc[-1] > result.metrics["acc_aggregated"].iloc[-1] + 0.05
    assert (result.warnings, result.notes) == ([], [])


def test_label_warns_of_a_client_with_shifted_labels() -> None:
    (x, y), *others = clients()
    assert "the model of client 0 contradicts the others'" in warnings_of(X[SERVER], [(x, (y + 1) % 10), *others])


def test_label_warns_of_two_swapped_classes() -> None:
    swapped = Y.copy()
    swapped[Y == 3], swapped[Y == 8] = 8, 3
    warnings = warnings_of(X[SERVER], [*clients(swapped)[:3], *clients()[3:]])
    assert "two groups of clients disagree" in warnings
    assert "'3'" in warnings
    assert "'8'" in warnings


def test_label_warns_of_random_labels() -> None:
    warnings = warnings_of(X[SERVER], clients(np.random.default_rng(1).permutation(Y)))
    assert "learnt almost nothing" in warnings or "contradict each other" in warnings


def test_label_warns_of_a_class_without_client() -> None:
    few = [(x[y < 7], y[y < 7]) for x, y in clients()]
    assert "are unlike all of the clients'" in warnings_of(X[SERVER], few)


def test_label_decides_that_samples_of_a_class_without_client_are_unknown() -> None:
    few = [(x[y < 7], y[y < 7]) for x, y in clients()]
    result = mrtf_fedml.label(X[SERVER], few, progress=False, **QUICK)
    decided = result.table()["decision"].to_numpy() == "unknown"
    assert result.summary["samples_unknown"] == decided.sum()
    assert np.mean(Y[SERVER][decided] >= 7) > 0.8
    assert np.mean(decided[Y[SERVER] >= 7]) > 0.5
    assert "look like no class" in " ".join(result.notes)
    assert result.summary["estimated_accuracy"] is None
    # Samples that are labelled later, of the same kind: half of the server's.
    again = result.predict_table(X[SERVER][::2])["decision"].to_numpy() == "unknown"
    assert (again == decided[::2]).all()


def test_label_warns_of_permuted_columns() -> None:
    table = load_breast_cancer()
    rows = np.random.default_rng(0).permutation(len(table.target))
    x, y = ((table.data - table.data.mean(axis=0)) / table.data.std(axis=0))[rows], table.target[rows]
    own = [(x[150:][place::5], y[150:][place::5]) for place in range(5)]
    assert warnings_of(x[:150], own) == ""
    assert "the order of columns" in warnings_of(x[:150, np.random.default_rng(0).permutation(30)], own)


def test_label_warns_of_a_collapsed_model_but_not_of_a_server_with_one_class() -> None:
    threes = X[Y == 3][:60]
    assert warnings_of(threes, clients()) == ""
    assert "100% of the samples are labelled" in warnings_of(X[SERVER], clients(), learning_rate=5.0)


def test_label_warns_of_a_class_too_rare_to_learn() -> None:
    # Uninformative features, one sample of forty in the second class: the model learns to predict the first.
    rows = np.random.default_rng(0)
    y = rows.integers(0, 2, 4000)
    x = rows.normal(size=(4000, 2)) + 0.7 * y[:, None]
    held = (y[:3600] == 0) | (np.arange(3600) % 40 == 0)
    own = [(x[:3600][held][place::5], y[:3600][held][place::5]) for place in range(5)]
    assert "the model finds 0% of the clients' own samples of '1'" in warnings_of(x[3600:], own)
    even = [(x[:600][place::5], y[:600][place::5]) for place in range(5)]
    assert "the model finds" not in warnings_of(x[3600:], even)


def test_label_warns_of_too_few_rounds() -> None:
    warnings = warnings_of(X[SERVER], clients(), rounds=1, learning_rate=0.002)
    assert "are likely to be wrong; train for more rounds" in warnings
