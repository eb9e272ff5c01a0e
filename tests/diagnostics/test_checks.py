"""Checks of a run: one warning per problem, and none for a run that went well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mrtf_fedml.diagnostics.accuracy_estimate import AccuracyEstimate, LabelCounts, RefiningGain
from mrtf_fedml.diagnostics.checks import (
    RunEvidence,
    describe_condition,
    find_estimate_obstacle,
    find_warnings,
    state_estimate,
)
from mrtf_fedml.diagnostics.shift import NeighbourStatistics
from mrtf_fedml.diagnostics.unknown_classes import CellComparison

CLASSES = ["cat", "dog", "owl", "fox"]
LABELS = torch.arange(40) % 4
#: Two clients with all classes, and one with the first two.
COUNTS = np.array([[10, 10, 10, 10], [5, 5, 5, 5], [8, 8, 0, 0]])


def confident_logits(labels: Tensor, strength: float = 6.0) -> Tensor:
    """Logits of these classes; confident with strength 6, not with 0.5."""
    return strength * torch.nn.functional.one_hot(labels, len(CLASSES)).float()


#: A run that went well: the model agrees with its teachers, who change a tenth of the aggregated model's labels.
GOOD = RunEvidence(
    logits=confident_logits(LABELS),
    class_names=CLASSES,
    train_losses=[1.4, 1.1, 0.9, 0.8, 0.6, 0.5, 0.45],
    aggregated=confident_logits(torch.where(torch.arange(40) % 10 == 0, (LABELS + 1) % 4, LABELS)),
    ensemble=confident_logits(LABELS),
    class_counts=COUNTS,
    participants=frozenset({0, 1, 2}),
)


def only_warning(**changes: Any) -> str:
    """The only warning after these changes to a good run."""
    (warning,) = find_warnings(replace(GOOD, **changes))
    return warning


def test_find_warnings_of_a_good_run_is_empty() -> None:
    assert find_warnings(GOOD) == []
    assert find_warnings(RunEvidence(GOOD.logits, CLASSES)) == [], (
        "an algorithm without teachers, across silos, with privacy"
    )
    assert find_warnings(replace(GOOD, train_losses=[0.01, 0.02, 0.01, 0.05, 0.06, 0.05])) == [], (
        "small losses may double"
    )
    assert find_warnings(replace(GOOD, train_losses=[0.9, 0.4, 1.2, 0.5, 1.1, 0.3, 0.8, 0.6])) == [], (
        "single rounds differ"
    )
    assert find_warnings(replace(GOOD, train_losses=[9.0, 2.0, 0.5, 0.4, 0.3])) == [], "a first round may overshoot"


def test_find_warnings_of_collapsed_predictions_names_the_class() -> None:
    one = torch.zeros(40, dtype=torch.int64)
    same = {"logits": confident_logits(one), "aggregated": confident_logits(one), "ensemble": confident_logits(one)}
    assert "100% of the samples are labelled 'cat'" in only_warning(**same)
    assert "100% of the samples are labelled 'cat'" in only_warning(**same, class_counts=None), "across silos too"
    rare = np.array([[970, 10, 10, 10]])
    assert find_warnings(replace(GOOD, **same, class_counts=rare, participants=frozenset({0}))) == [], (
        "clients know it as the rule"
    )
    few = {key: value[:10] for key, value in same.items()}
    assert find_warnings(replace(GOOD, **few)) == [], "ten samples may well be of one class"
    most = torch.where(torch.arange(40) < 4, LABELS, 0)
    mostly = {
        "logits": confident_logits(most),
        "aggregated": confident_logits(most),
        "ensemble": confident_logits(most),
    }
    assert find_warnings(replace(GOOD, **mostly)) == []


def test_find_warnings_names_predicted_classes_without_participants() -> None:
    warning = only_warning(participants=frozenset({2}))
    assert "50% of the samples are labelled 'owl', 'fox', of which no participating client has a sample" in warning
    assert find_warnings(replace(GOOD, class_counts=None, participants=frozenset({2}))) == [], (
        "who does not know cannot say"
    )


def test_find_warnings_of_confident_disagreement_with_the_ensemble() -> None:
    others = confident_logits(torch.where(torch.arange(40) % 5 < 3, (LABELS + 1) % 4, LABELS))
    assert "agrees with the ensemble of the clients' models on 40% of the samples only" in only_warning(ensemble=others)
    unsure = {"logits": confident_logits(LABELS, 0.5), "ensemble": others}
    assert find_warnings(replace(GOOD, **unsure)) == [], "a model that is not sure claims nothing"


def test_find_warnings_if_refining_changes_most_labels() -> None:
    others = confident_logits(torch.where(torch.arange(40) % 10 < 7, (LABELS + 1) % 4, LABELS))
    assert "refining has changed the label of 70% of the samples" in only_warning(aggregated=others)
    half = confident_logits(torch.where(torch.arange(40) % 2 < 1, (LABELS + 1) % 4, LABELS))
    assert find_warnings(replace(GOOD, aggregated=half)) == [], "a poor average is what the refinery is for"


def test_find_warnings_of_a_growing_or_diverging_loss() -> None:
    assert "loss grows (from 0.5 to 1.3)" in only_warning(train_losses=[0.6, 0.5, 0.5, 0.9, 1.2, 1.3, 1.4])
    assert "reached 827 (guessing has 1.39)" in only_warning(train_losses=[0.7, 827.0])
    assert "reached 827" in only_warning(train_losses=[827.0]), "a single round is enough"


def test_find_warnings_of_a_loss_without_progress() -> None:
    assert "they have learnt almost nothing" in only_warning(train_losses=[1.4, 1.39, 1.4, 1.38])
    assert "they have learnt almost nothing" in only_warning(train_losses=[1.4, 1.39, 1.4, 1.38], class_counts=None)
    assert find_warnings(replace(GOOD, train_losses=[1.4, 1.3, 1.0, 0.6, 0.5, 0.4])) == []
    assert "fit their own samples poorly" in only_warning(
        train_losses=[1.4, 1.3, 1.0, 0.9], class_counts=SIX, participants=frozenset(range(6))
    )
    # Clients of one class each need not guess; their losses say little, unless they are large.
    alone = np.diag([10, 10, 10, 10])
    assert (
        find_warnings(
            replace(GOOD, train_losses=[0.05, 0.06, 0.05], class_counts=alone, participants=frozenset(range(4)))
        )
        == []
    )


def test_find_warnings_of_unfamiliar_server_samples() -> None:
    assert "48% of the server's samples are unlike all of the clients' (5% is usual)" in only_warning(
        neighbours=neighbours(0.48)
    )
    assert "some may be of a kind or a class that no client has" in only_warning(neighbours=neighbours(0.15))
    assert find_warnings(replace(GOOD, neighbours=neighbours(0.09))) == []
    shifted = torch.stack([(LABELS + 1) % 4, *[LABELS] * 5])
    shifted_run = replace(
        GOOD, teacher_labels=shifted, teacher_clients=range(6), class_counts=SIX, neighbours=neighbours(0.48)
    )
    assert ["unlike" in warning for warning in find_warnings(shifted_run)] == [True], "no client is to blame for that"


def neighbours(novel: float, agreeing: float | None = None, expected: float = 0.95) -> NeighbourStatistics:
    return NeighbourStatistics(novel, 0.05, 0.06, agreeing, None if agreeing is None else expected)


def test_find_warnings_of_shifted_features() -> None:
    assert "40% of the features have a mean" in only_warning(neighbours=replace(neighbours(0.05), shifted=0.4))
    assert find_warnings(replace(GOOD, neighbours=replace(neighbours(0.05), shifted=0.1))) == []


def test_find_warnings_of_labels_that_neighbours_contradict() -> None:
    assert "38% of these labels or more are likely to be wrong" in only_warning(neighbours=neighbours(0.05, 0.57))
    assert find_warnings(replace(GOOD, neighbours=neighbours(0.05, 0.8))) == []
    assert find_warnings(replace(GOOD, neighbours=neighbours(0.05, 0.3, expected=0.4))) == [], (
        "neighbours that know little themselves"
    )


def test_find_warnings_allows_a_server_with_one_class() -> None:
    one = confident_logits(torch.zeros(40, dtype=torch.int64))
    same = {"logits": one, "aggregated": one, "ensemble": one}
    assert find_warnings(replace(GOOD, **same, neighbours=neighbours(0.05, 0.9))) == []
    assert "100% of the samples are labelled 'cat'" in only_warning(
        **same, neighbours=neighbours(0.05, 0.3, expected=0.4)
    )


def test_find_warnings_of_too_few_labelled_samples() -> None:
    counts = np.array([[2, 2, 2, 2], [2, 2, 2, 2]])
    assert "the clients have 16 labelled samples in all, for 4 classes" in only_warning(
        class_counts=counts, participants={0, 1}
    )


def estimate(accuracy: float, low: float, high: float) -> AccuracyEstimate:
    return AccuracyEstimate(accuracy, low, high, clients=5, samples=100, recall=(None,) * 4, contradicting={})


def test_find_warnings_names_clients_that_contradict_the_others() -> None:
    warning = only_warning(estimate=replace(estimate(0.9, 0.8, 0.95), contradicting={7: (0.95, 0.4)}))
    assert "client 7 reports 0.95 where the others' samples predict 0.40" in warning


#: Samples like the clients', and samples that differ.
ALIKE = CellComparison(torch.ones(120), excess=(0.0, 0.0), deviations=(0.0, 0.0))
SHIFTED = replace(ALIKE, excess=(0.2, 0.0), deviations=(9.0, 0.0))


def test_find_estimate_obstacle_names_the_shift() -> None:
    evidence = replace(GOOD, estimate=estimate(0.9, 0.8, 0.95), cells=ALIKE)
    assert find_estimate_obstacle(evidence) is None
    assert "another kind" in (find_estimate_obstacle(replace(evidence, cells=SHIFTED)) or "")
    unknown = replace(ALIKE, probability_known=torch.tensor([0.1, 0.9] * 60), deviations=(1.5, 0.0))
    assert "50% look like no class" in (find_estimate_obstacle(replace(evidence, cells=unknown)) or "")
    contradicted = replace(ALIKE, most_correct=0.65)
    assert "at most 0.65" in (find_estimate_obstacle(replace(evidence, cells=contradicted)) or "")
    supported = replace(ALIKE, most_correct=0.86)
    assert find_estimate_obstacle(replace(evidence, cells=supported)) is None
    confused = replace(estimate(0.6, 0.5, 0.7), classes_differ=True)
    assert "class frequencies" in (find_estimate_obstacle(replace(evidence, estimate=confused)) or "")
    few = replace(evidence, cells=None, logits=evidence.logits[:19])
    assert "fewer than 20 samples" in (find_estimate_obstacle(few) or "")
    not_counted = replace(evidence, cells=None)
    assert find_estimate_obstacle(not_counted) is None
    assert "only if" in (describe_condition(not_counted) or "")
    assert describe_condition(evidence) is None
    wide = state_estimate(replace(evidence, estimate=estimate(0.67, 0.49, 0.83)))
    assert "between 0.49 and 0.83" in (wide.reason or "")
    assert (wide.estimate, wide.accuracy_of_others) == (None, None)
    assert state_estimate(replace(evidence, estimate=estimate(0.67, 0.53, 0.82))).reason is None
    assert find_estimate_obstacle(replace(GOOD, estimate=None)) is None


def test_find_warnings_of_a_low_estimated_accuracy() -> None:
    assert "the model predicts 52% of the clients' held-out samples correctly" in only_warning(
        estimate=estimate(0.52, 0.46, 0.58)
    )
    assert find_warnings(replace(GOOD, estimate=estimate(0.62, 0.5, 0.74))) == [], "within chance"
    assert find_warnings(replace(GOOD, estimate=estimate(0.9, 0.86, 0.94))) == []


def test_find_warnings_if_the_refined_model_predicts_and_is_worse() -> None:
    warning = only_warning(gain=RefiningGain(-0.04, 0.01))
    assert "less accurate than the aggregated one (by 0.040 ± 0.010 on the clients' held-out samples)" in warning
    assert "mrtf compare --holdout 0.2" in warning
    assert find_warnings(replace(GOOD, gain=RefiningGain(0.04, 0.01))) == [], "refining helps"
    assert find_warnings(replace(GOOD, gain=RefiningGain(-0.04, 0.03))) == [], "within chance"
    assert find_warnings(replace(GOOD, gain=RefiningGain(-0.004, 0.001))) == [], "not worth a word"
    better = RefiningGain(-0.04, 0.01, refined_predicts=False)
    assert find_warnings(replace(GOOD, gain=better)) == [], "the better model predicts"


def test_find_warnings_of_classes_with_low_recall() -> None:
    found = torch.tensor([[900, 900, 900, 30], [900, 890, 870, 0]])
    assert "the model finds 0% of the clients' own samples of 'fox'" in only_warning(class_recall=found)
    few = torch.tensor([[900, 900, 900, 9], [900, 890, 870, 0]])
    assert find_warnings(replace(GOOD, class_recall=few)) == [], "nine samples may be hard ones"
    half = torch.tensor([[900, 900, 900, 30], [900, 890, 870, 10]])
    assert find_warnings(replace(GOOD, class_recall=half)) == [], "a rare class may be hard to predict"
    most = torch.tensor([[900, 900, 900, 30], [900, 0, 90, 0]])
    shifted = torch.stack([(LABELS + 1) % 4, *[LABELS] * 5])
    shifted_run = replace(GOOD, teacher_labels=shifted, teacher_clients=range(6), class_counts=SIX, class_recall=most)
    assert ["'dog', 'owl', 'fox'" in warning for warning in find_warnings(shifted_run)] == [True], (
        "no client is to blame for that"
    )
    untrained_run = replace(GOOD, train_losses=[1.4, 1.4, 1.4], class_recall=found)
    assert ["learnt almost nothing" in warning for warning in find_warnings(untrained_run)] == [True], (
        "that is said already"
    )


def test_find_warnings_of_shifted_samples_with_contradicted_labels() -> None:
    of_another = replace(neighbours(0.05, 0.75), separability=0.99)
    assert "differ from the clients' of the same class" in only_warning(neighbours=of_another)
    assert find_warnings(replace(GOOD, neighbours=replace(of_another, agreement=0.9))) == [], (
        "their labels may be right"
    )
    assert find_warnings(replace(GOOD, neighbours=replace(of_another, separability=0.7))) == [], (
        "of one kind a fifth is chance"
    )
    shifted = torch.stack([(LABELS + 1) % 4, *[LABELS] * 5])
    shifted_run = replace(
        GOOD, teacher_labels=shifted, teacher_clients=range(6), class_counts=SIX, neighbours=of_another
    )
    assert ["do not use these labels" in warning for warning in find_warnings(shifted_run)] == [True], (
        "no client is to blame for that"
    )


def test_find_warnings_names_classes_that_no_client_has() -> None:
    counts = COUNTS * [1, 1, 1, 0]
    few = torch.where(LABELS == 3, 0, LABELS)
    same = {"logits": confident_logits(few), "aggregated": confident_logits(few), "ensemble": confident_logits(few)}
    assert "no client has a sample of 'fox'" in only_warning(class_counts=counts, **same)


#: Six clients with ten samples of each class.
SIX = np.full((6, 4), 10)


def warnings_of_six(*votes: Tensor) -> list[str]:
    clients = list(range(len(votes)))
    return find_warnings(
        replace(
            GOOD,
            teacher_labels=torch.stack(votes),
            teacher_clients=clients,
            class_counts=SIX,
            participants=frozenset(clients),
        )
    )


def test_find_warnings_of_clients_that_contradict_each_other() -> None:
    shifted = (LABELS + 1) % 4
    swapped = torch.tensor([1, 0, 2, 3])[LABELS]
    assert warnings_of_six(*[LABELS] * 6) == []
    mistaken = torch.where(LABELS == 0, 1, LABELS)
    assert warnings_of_six(*[mistaken] * 3, *[LABELS] * 3) == [], "a class that is hard to predict is not a swapped one"
    (odd,) = warnings_of_six(shifted, *[LABELS] * 5)
    assert "the model of client 0 contradicts the others' on 100% of the samples" in odd
    untrained_run = replace(
        GOOD,
        train_losses=[1.4, 1.4, 1.4],
        teacher_labels=torch.stack([shifted, *[LABELS] * 5]),
        teacher_clients=range(6),
        class_counts=SIX,
    )
    assert ["learnt almost nothing" in warning for warning in find_warnings(untrained_run)] == [True], (
        "no client is named"
    )
    (all_of_them,) = warnings_of_six(*[shifted] * 3, *[(LABELS + 2) % 4] * 3)
    assert "the clients' models contradict each other" in all_of_them
    (camps,) = warnings_of_six(*[swapped] * 3, *[LABELS] * 3)
    assert "two groups of clients disagree (what is 'cat' to some is 'dog' to others)" in camps


def test_find_warnings_of_swapped_classes_that_the_model_gives_one_label() -> None:
    swapped, merged = torch.tensor([1, 0, 2, 3])[LABELS], torch.where(LABELS == 1, 0, LABELS)
    run = replace(GOOD, logits=confident_logits(merged), teacher_clients=range(6), class_counts=SIX)
    groups = replace(run, teacher_labels=torch.stack([*[swapped] * 3, *[LABELS] * 3]))
    assert any("two groups of clients disagree (what is 'cat'" in warning for warning in find_warnings(groups))
    agreeing = replace(run, teacher_labels=torch.stack([LABELS] * 6))
    assert not any("two groups" in warning for warning in find_warnings(agreeing))
    biased = replace(run, teacher_labels=torch.stack([*[merged] * 3, *[LABELS] * 3]))
    assert not any("two groups" in warning for warning in find_warnings(biased)), "one group does not tell them apart"


def test_find_warnings_ignores_models_of_clients_without_the_class() -> None:
    counts = SIX.copy()
    counts[:, 2:] = 0
    counts[5] = [0, 0, 10, 10]
    # Five know cats and dogs only, and call an owl a cat.
    few = torch.where(LABELS < 2, LABELS, 0)
    votes = torch.stack([*[few] * 5, torch.where(LABELS < 2, 2, LABELS)])
    assert (
        find_warnings(
            replace(
                GOOD,
                teacher_labels=votes,
                teacher_clients=range(6),
                class_counts=counts,
                participants=frozenset(range(6)),
            )
        )
        == []
    )
    # A single model has nothing to contradict.
    assert (
        find_warnings(
            replace(
                GOOD,
                teacher_labels=votes[:1],
                teacher_clients=[0],
                class_counts=counts,
                participants=frozenset(range(6)),
            )
        )
        == []
    )


def test_stated_estimate_comes_from_labels_where_the_samples_differ() -> None:
    clients = AccuracyEstimate(0.9, 0.8, 0.97, 5, 60, (None,) * 4, {}, effective_samples=60.0)
    labels = LabelCounts(samples=120, given=60, random=60, correct=30)
    shifted = replace(GOOD, estimate=clients, cells=SHIFTED, labels=labels)
    stated = state_estimate(shifted)
    assert stated.estimate is not None
    assert stated.estimate.accuracy == 0.75, "60 labels are given, and half of the other 60 are right"
    assert stated.reason is None
    assert stated.accuracy_of_others is None, "the clients' confidences say nothing about these samples"
    assert "random" in (stated.condition or "")
    assert state_estimate(replace(shifted, labels_are_marked=True)).condition is None
    few = state_estimate(replace(shifted, labels=LabelCounts(40, 20, 5, 5)))
    assert few.estimate is None
    assert "another kind" in (few.reason or "")
    assert "--random" in (few.reason or "")
    wide = state_estimate(replace(shifted, labels=LabelCounts(400, 20, 20, 10)))
    assert wide.estimate is None
    assert "between 0.30 and 0.75" in (wide.reason or "")


def test_stated_estimate_contradicted_by_labels_warns() -> None:
    clients = AccuracyEstimate(0.95, 0.9, 0.99, 5, 200, (None,) * 4, {}, effective_samples=200.0)
    evidence = replace(GOOD, estimate=clients, labels=LabelCounts(samples=120, given=60, random=60, correct=24))
    stated = state_estimate(evidence)
    assert stated.estimate is not None
    assert stated.estimate.accuracy < 0.8
    assert "24 of 60" in (stated.warning or "")
    assert stated.accuracy_of_others is None
    agreeing = state_estimate(replace(evidence, labels=LabelCounts(120, 60, 60, 57)))
    assert agreeing.warning is None
    assert agreeing.accuracy_of_others == pytest.approx(0.95)
