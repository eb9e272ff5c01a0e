"""The accuracy estimate from the clients' counts: its value, its interval, contradictions, and how it is shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mrtf_fedml.algorithms.evaluation import EvaluationCounts
from mrtf_fedml.diagnostics.accuracy_estimate import (
    AccuracyEstimate,
    LabelCounts,
    RefiningGain,
    correct_estimate,
    estimate_accuracy,
    estimate_class_frequencies,
    note_aggregated_predicts,
    smooth_confusion,
    summarize_estimate,
    warn_contradicting_clients,
)
from mrtf_fedml.training.evaluation import format_estimate

GAIN = RefiningGain(-0.05, 0.01, refined_predicts=False)


def counts_of(confusion: torch.Tensor) -> EvaluationCounts:
    return replace(EvaluationCounts.zeros(len(confusion)), confusion=confusion)


def draw_tables(
    rng: np.random.Generator, recalls: np.ndarray, priors: np.ndarray, samples: int
) -> dict[int, EvaluationCounts]:
    """One table per client with these recalls [K, C] and class frequencies [K, C]; errors go to the next class."""
    tables = {}
    for client, (recall, prior) in enumerate(zip(recalls, priors, strict=True)):
        held = rng.multinomial(samples, prior)
        correct = rng.binomial(held, recall)
        table = np.diag(correct) + np.roll(np.diag(held - correct), 1, axis=1)
        tables[client] = counts_of(torch.from_numpy(table))
    return tables


@pytest.mark.parametrize(("clients", "samples", "spread"), [(5, 20, 0.1), (20, 5, 0.1), (3, 40, 0.0), (10, 10, 0.2)])
def test_interval_covers_the_accuracy_on_the_servers_samples(clients: int, samples: int, spread: float) -> None:
    rng, covered, runs, classes = np.random.default_rng(clients), 0, 100, 4
    base = np.array([0.95, 0.9, 0.8, 0.7])
    for _ in range(runs):
        # Each client's recalls differ, as its data do; the server's samples come from all of them.
        recalls = np.clip(base + rng.uniform(-spread, spread, (clients, 1)), 0, 1)
        priors = rng.dirichlet(np.full(classes, 2.0), clients)
        tables = draw_tables(rng, recalls, priors, samples)
        labels = rng.choice(classes, 100)
        correct = rng.random(100) < recalls[rng.integers(clients, size=100), labels]
        predicted = torch.from_numpy(np.where(correct, labels, (labels + 1) % classes))
        estimate = estimate_accuracy(tables, predicted)
        assert estimate is not None
        covered += estimate.low <= correct.mean() <= estimate.high
    assert covered / runs >= 0.9


def test_estimate_follows_the_servers_class_frequencies() -> None:
    # The second class is always confused half of the time; the server has almost only the first.
    table = torch.tensor([[500, 0], [250, 250]])
    tables = {client: counts_of(table) for client in range(5)}
    estimate = estimate_accuracy(tables, torch.tensor([0] * 9500 + [1] * 500))
    assert estimate is not None
    assert estimate.accuracy == pytest.approx(0.95, abs=0.015), "5 of 100 are the second class's half"
    assert (estimate.clients, estimate.samples) == (5, 5000)
    assert estimate.classes_differ
    same = estimate_accuracy(tables, torch.tensor([0] * 75 + [1] * 25))
    assert same is not None
    assert not same.classes_differ
    assert estimate.recall[0] is not None
    assert estimate.recall[0][1] < estimate.recall[0][0] <= estimate.recall[0][2]
    frequencies = estimate_class_frequencies(
        smooth_confusion(5.0 * table.numpy()), np.array([9500.0, 500.0]), np.full(2, 2500.0)
    )
    assert frequencies.tolist() == pytest.approx([0.9, 0.1], abs=0.03)


def test_estimate_needs_held_out_samples() -> None:
    assert estimate_accuracy({}, torch.zeros(9, dtype=torch.int64)) is None
    empty = EvaluationCounts.zeros(2)
    assert estimate_accuracy({0: empty}, torch.zeros(9, dtype=torch.int64)) is None


def test_one_lying_client_is_named_and_its_weight_is_bounded() -> None:
    honest = counts_of(torch.tensor([[4, 6], [6, 4]]))
    lie = counts_of(torch.tensor([[50000, 0], [0, 50000]]))
    tables = {0: honest, 1: honest, 2: lie, 3: honest, 4: honest}
    estimate = estimate_accuracy(tables, torch.tensor([0, 1] * 50))
    assert estimate is not None
    assert list(estimate.contradicting) == [2]
    assert estimate.low <= 0.4 <= estimate.high
    assert estimate.accuracy < 0.65
    warning = warn_contradicting_clients(estimate)
    assert warning is not None
    assert "client 2" in warning
    assert warn_contradicting_clients(replace(estimate, contradicting={})) is None


def test_clients_that_differ_by_nature_are_not_named() -> None:
    rng = np.random.default_rng(0)
    recalls = np.clip(rng.normal(0.8, 0.15, (12, 1)), 0, 1).repeat(3, axis=1)
    tables = draw_tables(rng, recalls, np.full((12, 3), 1 / 3), 30)
    estimate = estimate_accuracy(tables, torch.tensor([0, 1, 2] * 20))
    assert estimate is not None
    assert not estimate.contradicting


def test_two_wrong_of_eight_contradict_nobody() -> None:
    good, fair = counts_of(torch.tensor([[8, 0], [0, 8]])), counts_of(torch.tensor([[3, 1], [1, 3]]))
    estimate = estimate_accuracy({0: fair, 1: good, 2: good, 3: good, 4: good}, torch.tensor([0, 1] * 20))
    assert estimate is not None
    assert not estimate.contradicting, "chance does that too"


def test_note_aggregated_predicts_only_if_it_is_more_accurate() -> None:
    line = {"estimated_gain": -0.05, "estimated_gain_stderr": 0.01, "refined_share": 0}
    assert RefiningGain.from_metrics(line) == GAIN
    assert RefiningGain.from_metrics({"estimated_gain": None}) is None
    note = note_aggregated_predicts(GAIN)
    assert note is not None
    assert "refining may not help" in note
    assert "by 0.050 ± 0.010" in note
    assert "mrtf compare --holdout 0.2" in note
    across_silos = note_aggregated_predicts(replace(GAIN, allows_holdout=False))
    assert across_silos is not None
    assert "holdout" not in across_silos, "no process has the samples of all silos"
    assert note_aggregated_predicts(replace(GAIN, refined_predicts=True)) is None
    assert note_aggregated_predicts(replace(GAIN, gain=0.1)) is None, "the user has chosen the aggregated model"
    assert note_aggregated_predicts(None) is None


def test_summary_has_the_estimate_or_the_reason_why_there_is_none() -> None:
    tables = {client: counts_of(torch.tensor([[9, 1], [0, 10]])) for client in range(3)}
    estimate = estimate_accuracy(tables, torch.tensor([0, 1] * 50))
    stated = summarize_estimate(estimate, None, None, ["a", "b"])
    assert set(stated["estimated_recall"]) == {"a", "b"}
    assert "interval" in (format_estimate(stated) or "")
    withheld = summarize_estimate(estimate, "the samples differ", None, ["a", "b"])
    assert withheld["estimated_accuracy"] is None
    assert format_estimate(withheld) == "no estimate: the samples differ"
    assert format_estimate(summarize_estimate(None, None, None, ["a", "b"])) is None


def test_labels_drawn_at_random_are_added_to_the_clients_samples() -> None:
    clients = AccuracyEstimate(0.9, 0.8, 0.95, 4, 100, (None, None), {}, effective_samples=80.0)
    corrected = correct_estimate(clients, LabelCounts(samples=220, given=20, random=20, correct=17))
    assert corrected is not None
    assert corrected.accuracy == pytest.approx((20 + 200 * (80 * 0.9 + 17) / 100) / 220)
    assert corrected.low < corrected.accuracy < corrected.high
    # Samples that were not drawn at random are right, and say nothing about the others.
    asked = correct_estimate(clients, LabelCounts(samples=220, given=20, random=0, correct=0))
    assert asked is not None
    assert asked.accuracy == pytest.approx((20 + 200 * 0.9) / 220)


def test_labels_that_contradict_the_clients_count_alone() -> None:
    clients = AccuracyEstimate(0.95, 0.9, 0.99, 4, 300, (None, None), {}, effective_samples=300.0)
    corrected = correct_estimate(clients, LabelCounts(samples=1000, given=40, random=40, correct=12))
    assert corrected is not None
    assert corrected.accuracy == pytest.approx((40 + 960 * 0.3) / 1000)
    assert correct_estimate(clients, LabelCounts(samples=1000, given=10, random=10, correct=1)) is None


def test_interval_of_random_labels_contains_the_truth_in_95_of_100_runs() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        right = rng.random(300) < 0.7
        chosen = rng.permutation(300)[:30]
        labels = LabelCounts(samples=300, given=30, random=30, correct=int(right[chosen].sum()))
        stated = correct_estimate(None, labels)
        assert stated is not None
        right[chosen] = True
        covered += stated.low <= right.mean() <= stated.high
    assert covered >= 190
