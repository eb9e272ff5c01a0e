"""The watch over a run: each thing that looks wrong is one sentence, and what goes well stays quiet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mrtf_fedml.rounds.watch import Evidence, signs

CLASSES = ["cat", "dog", "owl", "fox"]
LABELS = torch.arange(40) % 4
#: Two clients with all classes, and one with the first two.
COUNTS = np.array([[10, 10, 10, 10], [5, 5, 5, 5], [8, 8, 0, 0]])


def sure_of(labels: Tensor, strength: float = 6.0) -> Tensor:
    """Logits that say these classes; with 6 they are sure, with 0.5 hardly."""
    return strength * torch.nn.functional.one_hot(labels, len(CLASSES)).float()


#: A run that went well: the model follows its teachers, who mend a tenth of what the average says.
GOOD = Evidence(
    logits=sure_of(LABELS),
    class_names=CLASSES,
    losses=[1.4, 1.1, 0.9, 0.8, 0.6, 0.5, 0.45],
    aggregated=sure_of(torch.where(torch.arange(40) % 10 == 0, (LABELS + 1) % 4, LABELS)),
    ensemble=sure_of(LABELS),
    counts=COUNTS,
    took_part=frozenset({0, 1, 2}),
)


def told(**changes: Any) -> str:
    """The one sentence that these changes to a good run bring about."""
    (sentence,) = signs(replace(GOOD, **changes))
    return sentence


def test_a_good_run_is_quiet_whatever_of_it_is_known() -> None:
    assert signs(GOOD) == []
    assert signs(Evidence(GOOD.logits, CLASSES)) == [], "an algorithm without teachers, across silos, with privacy"
    assert signs(replace(GOOD, losses=[0.01, 0.02, 0.01, 0.05, 0.06, 0.05])) == [], "small losses may double"
    assert signs(replace(GOOD, losses=[0.9, 0.4, 1.2, 0.5, 1.1, 0.3, 0.8, 0.6])) == [], "single rounds differ"
    assert signs(replace(GOOD, losses=[9.0, 2.0, 1.0, 0.8])) == [], "a first round may overshoot"


def test_one_class_for_nearly_everything() -> None:
    one = torch.zeros(40, dtype=torch.int64)
    same = {"logits": sure_of(one), "aggregated": sure_of(one), "ensemble": sure_of(one)}
    assert "100% of the samples are labelled 'cat'" in told(**same)
    assert "100% of the samples are labelled 'cat'" in told(**same, counts=None), "across silos too"
    rare = np.array([[970, 10, 10, 10]])
    assert signs(replace(GOOD, **same, counts=rare, took_part=frozenset({0}))) == [], "clients know it as the rule"
    few = {key: value[:10] for key, value in same.items()}
    assert signs(replace(GOOD, **few)) == [], "ten samples may well be of one class"
    most = torch.where(torch.arange(40) < 4, LABELS, 0)
    mostly = {"logits": sure_of(most), "aggregated": sure_of(most), "ensemble": sure_of(most)}
    assert signs(replace(GOOD, **mostly)) == []


def test_a_class_that_no_client_has_taught() -> None:
    sentence = told(took_part=frozenset({2}))
    assert "50% of the samples are labelled 'owl', 'fox', of which no client that took part has a sample" in sentence
    assert signs(replace(GOOD, counts=None, took_part=frozenset({2}))) == [], "who does not know cannot say"


def test_confidence_without_its_teachers() -> None:
    others = sure_of(torch.where(torch.arange(40) % 5 < 3, (LABELS + 1) % 4, LABELS))
    assert "gives the label of the clients' models together for 40% of the samples only" in told(ensemble=others)
    unsure = {"logits": sure_of(LABELS, 0.5), "ensemble": others}
    assert signs(replace(GOOD, **unsure)) == [], "a model that is not sure claims nothing"


def test_refining_that_changes_most_labels() -> None:
    others = sure_of(torch.where(torch.arange(40) % 10 < 7, (LABELS + 1) % 4, LABELS))
    assert "refining has changed the label of 70% of the samples" in told(aggregated=others)
    half = sure_of(torch.where(torch.arange(40) % 2 < 1, (LABELS + 1) % 4, LABELS))
    assert signs(replace(GOOD, aggregated=half)) == [], "a poor average is what the refinery is for"


def test_a_loss_that_grows_or_overshoots() -> None:
    assert "loss grows (from 0.5 to 1.3)" in told(losses=[0.6, 0.5, 0.5, 0.9, 1.2, 1.3, 1.4])
    assert "reached 827, where guessing has 1.39" in told(losses=[0.7, 827.0])
    assert "reached 827" in told(losses=[827.0]), "a single round is told too"
