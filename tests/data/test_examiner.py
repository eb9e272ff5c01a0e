"""The examiner marks; it does not tell."""

from __future__ import annotations

import copy
import gc
import io
import json
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, f1_score, recall_score

from mrtf_fedml.data.examiner import Examiner
from mrtf_fedml.errors import UserError

TRUTH = torch.tensor([2, 0, 1, 1, 0, 2, 2, 1])


def test_accuracy_of_indices_and_of_scores() -> None:
    examiner = Examiner(TRUTH, list("abc"))
    answers = torch.tensor([2, 0, 1, 0, 0, 1, 2, 1])
    assert examiner.score(answers) == 6 / 8
    assert examiner.score(torch.nn.functional.one_hot(answers, 3).float()) == 6 / 8
    assert examiner.score(TRUTH) == 1.0


def test_a_report_worked_by_hand() -> None:
    """Class a: two of two found, one called so wrongly; b: one of two; c: no sample, never called."""
    report = Examiner(torch.tensor([0, 0, 1, 1]), ["a", "b", "c"]).report(torch.tensor([0, 0, 0, 1]))
    assert report["accuracy"] == 0.75
    assert report["recall"] == {"a": 1.0, "b": 0.5, "c": None}
    assert report["confusion"] == [[2, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert report["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert json.loads(json.dumps(report)) == report


def test_a_report_agrees_with_scikit_learn() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth, answers = rng.integers(0, 5, 40), rng.integers(0, 5, 40)
        report = Examiner(torch.from_numpy(truth), list("abcde")).report(torch.from_numpy(answers))
        told = (report["accuracy"], report["macro_f1"], *report["recall"].values())
        mean_f1 = f1_score(truth, answers, average="macro", zero_division=0)
        recalls = recall_score(truth, answers, average=None)
        assert told == pytest.approx(((truth == answers).mean(), mean_f1, *recalls)), f"seed {seed}"
        assert report["confusion"] == confusion_matrix(truth, answers, labels=range(5)).tolist(), f"seed {seed}"


def test_calibration_by_hand() -> None:
    """At 0.9 one of two is right, at 0.6 the one, and the sample at 0.8 has no label."""
    examiner = Examiner(torch.tensor([0, 0, 1, -1]), ["a", "b"])
    rows = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.4, 0.6], [0.8, 0.2]], dtype=torch.float64)
    assert examiner.calibration(rows, bins=5) == [
        {"samples": 0, "confidence": None, "accuracy": None},
        {"samples": 0, "confidence": None, "accuracy": None},
        {"samples": 0, "confidence": None, "accuracy": None},
        {"samples": 1, "confidence": 0.6, "accuracy": 1.0},
        {"samples": 2, "confidence": 0.9, "accuracy": 0.5},
    ]


def test_samples_without_a_label_are_not_marked() -> None:
    assert Examiner(torch.tensor([0, -1, 1]), ["a", "b"]).score(torch.tensor([0, 1, 0])) == 0.5


def test_it_keeps_its_own_copy() -> None:
    labels = TRUTH.clone()
    examiner = Examiner(labels, list("abc"))
    labels.zero_()
    assert examiner.score(TRUTH) == 1.0


def test_nothing_it_shows_holds_the_labels() -> None:
    examiner = Examiner(TRUTH, list("abc"))
    assert not hasattr(examiner, "__dict__")
    for name in dir(examiner):
        value = getattr(examiner, name)
        assert not isinstance(value, torch.Tensor | np.ndarray), name
        if isinstance(value, list | tuple):
            assert list(value) != TRUTH.tolist(), name
    assert not any(isinstance(referent, torch.Tensor) for referent in gc.get_referents(examiner))
    assert repr(examiner) == str(examiner) == "Examiner(sealed, 3 classes)"
    assert [name for name in dir(examiner) if not name.startswith("_")] == ["calibration", "report", "score"]


def test_it_cannot_be_iterated_indexed_or_extended() -> None:
    examiner = Examiner(TRUTH, list("abc"))
    with pytest.raises(TypeError):
        iter(examiner)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        examiner[0]  # type: ignore[index]
    with pytest.raises(TypeError):
        len(examiner)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        examiner.labels = TRUTH  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "send", [pickle.dumps, copy.copy, copy.deepcopy, lambda examiner: torch.save(examiner, io.BytesIO())]
)
def test_it_is_neither_copied_nor_sent(send: Callable[[Examiner], object]) -> None:
    with pytest.raises(TypeError, match="neither copied, pickled nor sent: the true labels stay"):
        send(Examiner(TRUTH, list("abc")))


def test_wrong_predictions_are_refused() -> None:
    examiner = Examiner(TRUTH, list("abc"))
    for wrong in (TRUTH[:-1], TRUTH.float(), torch.zeros(8, 3, 2), torch.full((8,), 3), torch.full((8,), -1)):
        with pytest.raises(ValueError, match="predictions must"):
            examiner.score(wrong)


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(UserError, match="labels hold class 2 but there are only 2 classes; correct them"):
        Examiner(TRUTH, ["a", "b"])
    with pytest.raises(ValueError, match="one class a sample"):
        Examiner(TRUTH.reshape(4, 2), list("abc"))
    with pytest.raises(ValueError, match="nothing to examine"):
        Examiner(torch.full((3,), -1), list("abc"))
