"""The evaluator scores predictions and does not reveal labels."""

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

from mrtf_fedml.data.evaluator import SealedEvaluator
from mrtf_fedml.errors import UserError

TRUE_LABELS = torch.tensor([2, 0, 1, 1, 0, 2, 2, 1])


def test_score_accepts_class_indices_and_rows_of_scores() -> None:
    evaluator = SealedEvaluator(TRUE_LABELS, list("abc"))
    predictions = torch.tensor([2, 0, 1, 0, 0, 1, 2, 1])
    assert evaluator.score(predictions) == 6 / 8
    assert evaluator.score(torch.nn.functional.one_hot(predictions, 3).float()) == 6 / 8
    assert evaluator.score(TRUE_LABELS) == 1.0


def test_report_equals_hand_computed_values() -> None:
    """Class a: two of two found, one called so wrongly; b: one of two; c: no sample, never called."""
    report = SealedEvaluator(torch.tensor([0, 0, 1, 1]), ["a", "b", "c"]).report(torch.tensor([0, 0, 0, 1]))
    assert report["accuracy"] == 0.75
    assert report["recall"] == {"a": 1.0, "b": 0.5, "c": None}
    assert report["confusion"] == [[2, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert report["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert json.loads(json.dumps(report)) == report


def test_report_agrees_with_scikit_learn() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        true_labels, predictions = rng.integers(0, 5, 40), rng.integers(0, 5, 40)
        report = SealedEvaluator(torch.from_numpy(true_labels), list("abcde")).report(torch.from_numpy(predictions))
        scores = (report["accuracy"], report["macro_f1"], *report["recall"].values())
        mean_f1 = f1_score(true_labels, predictions, average="macro", zero_division=0)
        recalls = recall_score(true_labels, predictions, average=None)
        assert scores == pytest.approx(((true_labels == predictions).mean(), mean_f1, *recalls)), f"seed {seed}"
        assert report["confusion"] == confusion_matrix(true_labels, predictions, labels=range(5)).tolist(), (
            f"seed {seed}"
        )


def test_calibration_equals_hand_computed_values() -> None:
    """At 0.9 one of two is right, at 0.6 the one, and the sample at 0.8 has no label."""
    evaluator = SealedEvaluator(torch.tensor([0, 0, 1, -1]), ["a", "b"])
    rows = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.4, 0.6], [0.8, 0.2]], dtype=torch.float64)
    assert evaluator.calibration(rows, bins=5) == [
        {"samples": 0, "confidence": None, "accuracy": None},
        {"samples": 0, "confidence": None, "accuracy": None},
        {"samples": 0, "confidence": None, "accuracy": None},
        {"samples": 1, "confidence": 0.6, "accuracy": 1.0},
        {"samples": 2, "confidence": 0.9, "accuracy": 0.5},
    ]


def test_samples_without_a_label_are_not_scored() -> None:
    assert SealedEvaluator(torch.tensor([0, -1, 1]), ["a", "b"]).score(torch.tensor([0, 1, 0])) == 0.5


def test_evaluator_copies_the_labels() -> None:
    labels = TRUE_LABELS.clone()
    evaluator = SealedEvaluator(labels, list("abc"))
    labels.zero_()
    assert evaluator.score(TRUE_LABELS) == 1.0


def test_no_public_attribute_or_repr_holds_the_labels() -> None:
    evaluator = SealedEvaluator(TRUE_LABELS, list("abc"))
    assert not hasattr(evaluator, "__dict__")
    for name in dir(evaluator):
        value = getattr(evaluator, name)
        assert not isinstance(value, torch.Tensor | np.ndarray), name
        if isinstance(value, list | tuple):
            assert list(value) != TRUE_LABELS.tolist(), name
    assert not any(isinstance(referent, torch.Tensor) for referent in gc.get_referents(evaluator))
    assert repr(evaluator) == str(evaluator) == "SealedEvaluator(3 classes)"
    assert [name for name in dir(evaluator) if not name.startswith("_")] == ["calibration", "report", "score"]


def test_evaluator_cannot_be_iterated_indexed_or_extended() -> None:
    evaluator = SealedEvaluator(TRUE_LABELS, list("abc"))
    with pytest.raises(TypeError):
        iter(evaluator)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        evaluator[0]  # type: ignore[index]
    with pytest.raises(TypeError):
        len(evaluator)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        evaluator.labels = TRUE_LABELS  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "send", [pickle.dumps, copy.copy, copy.deepcopy, lambda evaluator: torch.save(evaluator, io.BytesIO())]
)
def test_evaluator_cannot_be_copied_pickled_or_saved(send: Callable[[SealedEvaluator], object]) -> None:
    with pytest.raises(TypeError, match="SealedEvaluator"):
        send(SealedEvaluator(TRUE_LABELS, list("abc")))


def test_invalid_predictions_raise() -> None:
    evaluator = SealedEvaluator(TRUE_LABELS, list("abc"))
    for wrong in (
        TRUE_LABELS[:-1],
        TRUE_LABELS.float(),
        torch.zeros(8, 3, 2),
        torch.full((8,), 3),
        torch.full((8,), -1),
    ):
        with pytest.raises(ValueError, match="predictions must"):
            evaluator.score(wrong)


def test_invalid_labels_raise() -> None:
    with pytest.raises(UserError, match="class 2"):
        SealedEvaluator(TRUE_LABELS, ["a", "b"])
    with pytest.raises(ValueError, match="one class per sample"):
        SealedEvaluator(TRUE_LABELS.reshape(4, 2), list("abc"))
    with pytest.raises(ValueError, match="nothing to score"):
        SealedEvaluator(torch.full((3,), -1), list("abc"))
