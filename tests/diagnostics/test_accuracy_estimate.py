"""The clients' accuracy estimate: how it is read from metrics, described and checked."""

from __future__ import annotations

from dataclasses import replace

from mrtf_fedml.diagnostics.accuracy_estimate import (
    AccuracyEstimate,
    describe_basis,
    format_estimate,
    note_aggregated_predicts,
    warn_low_accuracy,
)
from mrtf_fedml.diagnostics.shift import NeighbourStatistics

ESTIMATE = AccuracyEstimate(0.82, 0.03, gain=-0.05, gain_stderr=0.01, refined_predicts=False)
SIMILAR = NeighbourStatistics(
    novel=0.05, expected_novel=0.05, novel_margin=0.06, agreement=0.9, expected_agreement=0.95, separability=0.5
)
OWN = "the clients' own samples"


def test_from_metrics_reads_the_reported_estimates() -> None:
    line = {"round": 3, "estimated_accuracy": 0.82, "estimated_accuracy_stderr": 0.03}
    assert AccuracyEstimate.from_metrics(line) == AccuracyEstimate(0.82, 0.03)
    compared = {"estimated_gain": -0.05, "estimated_gain_stderr": 0.01, "refined_share": 0}
    assert AccuracyEstimate.from_metrics({**line, **compared}) == ESTIMATE
    weighted = {"estimated_accuracy_unweighted": 0.7, "estimated_accuracy_unweighted_stderr": 0.02}
    assert AccuracyEstimate.from_metrics({**line, **weighted}) == AccuracyEstimate(0.82, 0.03, unweighted=(0.7, 0.02))
    missing = {"round": 0, "estimated_accuracy": None, "estimated_accuracy_stderr": None}
    assert AccuracyEstimate.from_metrics(missing) is None
    assert AccuracyEstimate.from_metrics({"round": 0}) is None


def test_describe_basis_names_optimism_if_clients_overfit_their_samples() -> None:
    line = {"round": 3, "estimated_accuracy": 0.99, "estimated_accuracy_stderr": 0.01, "train_loss": 0.02}
    basis = describe_basis(AccuracyEstimate.from_metrics(line), SIMILAR)
    assert basis == f"{OWN}, optimistic: the clients trained on them"
    for other in ({"train_loss": 0.5}, {"train_loss": None}, {"estimated_optimism": 0.0}):
        assert describe_basis(AccuracyEstimate.from_metrics({**line, **other}), SIMILAR) == OWN


def test_note_aggregated_predicts_only_if_it_is_more_accurate() -> None:
    note = note_aggregated_predicts(ESTIMATE)
    assert note is not None
    assert "refining may not help" in note
    assert "by 0.050 ± 0.010" in note
    assert "mrtf compare --holdout 0.2" in note
    across_silos = note_aggregated_predicts(replace(ESTIMATE, allows_holdout=False))
    assert across_silos is not None
    assert "holdout" not in across_silos, "no process has the samples of all silos"
    assert note_aggregated_predicts(replace(ESTIMATE, refined_predicts=True)) is None
    assert note_aggregated_predicts(replace(ESTIMATE, gain=0.1)) is None, "the user has chosen the aggregated model"
    assert note_aggregated_predicts(None) is None


def test_describe_basis_names_what_limits_the_estimate() -> None:
    assert describe_basis(ESTIMATE, SIMILAR) == OWN
    for other in ({"novel": 0.6}, {"separability": 0.99}, {"shifted": 0.5}):
        assert describe_basis(ESTIMATE, replace(SIMILAR, **other)) == f"{OWN}, which differ from the server's", other
    contradicted = replace(SIMILAR, agreement=0.5)
    expected = f"{OWN}; nearest neighbours suggest at most 0.55"
    assert describe_basis(ESTIMATE, contradicted) == expected, "agreement 0.95 among clients, 0.5 on the server"
    low = replace(ESTIMATE, accuracy=0.5)
    assert describe_basis(low, contradicted) == OWN, "the neighbours agree with the estimate"
    assert describe_basis(ESTIMATE, None) == f"{OWN}, not compared with the server's"
    assert describe_basis(None, SIMILAR) is None
    weighted = replace(ESTIMATE, unweighted=(0.7, 0.02))
    assert describe_basis(weighted, SIMILAR) == f"{OWN}, weighted by the server's predicted classes (0.70 unweighted)"
    assert describe_basis(replace(ESTIMATE, unweighted=(0.8, 0.02)), SIMILAR) == OWN, "the difference is small"


def test_format_estimate_shows_error_and_basis() -> None:
    summary = {
        "estimated_accuracy": 0.816,
        "estimated_accuracy_stderr": 0.028,
        "estimate_basis": describe_basis(ESTIMATE, None),
    }
    assert format_estimate(summary) == f"0.82 ± 0.03 (measured on {OWN}, not compared with the server's)"
    assert format_estimate({"estimated_accuracy": None}) is None


def test_warn_low_accuracy_trusts_weights_as_far_as_predictions_are_right() -> None:
    assert warn_low_accuracy(AccuracyEstimate(0.58, 0.04)) is not None
    learnt = AccuracyEstimate(0.80, 0.10, unweighted=(0.58, 0.04))
    assert warn_low_accuracy(learnt) is None, "the server has classes that are learnt already"
    warning = warn_low_accuracy(AccuracyEstimate(1.0, 0.81, unweighted=(0.1, 0.03)))
    assert warning is not None, "a model that predicts one class only is right on all of it"
    assert "10% of the clients' own samples" in warning
