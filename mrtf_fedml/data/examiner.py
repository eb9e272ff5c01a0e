"""The true labels of the server's set, sealed: they mark an answer and do nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import UserError


class Examiner:
    """Marks predictions for the server's set, and never gives a label back.

    The labels live in a closure and not in an attribute, so nothing that lists, prints, copies or sends the
    examiner can carry them along. Samples whose label is -1 are not marked.

    >>> examiner = Examiner(torch.tensor([0, 1, 1]), ["cat", "dog"])
    >>> round(examiner.score(torch.tensor([0, 1, 0])), 3)
    0.667
    """

    __slots__ = ("_calibration", "_class_names", "_confusion")

    def __init__(self, labels: Tensor, class_names: Sequence[str]) -> None:
        self._class_names = tuple(class_names)
        self._confusion, self._calibration = _sealed(labels, len(self._class_names))

    def score(self, predictions: Tensor) -> float:
        """Accuracy of predictions: class indices [M], or scores [M, C] of which the largest counts."""
        return _accuracy(self._confusion(predictions))

    def report(self, predictions: Tensor) -> dict[str, Any]:
        """Accuracy, macro-F1, recall a class and the confusion matrix, ready for JSON.

        `recall` maps each class name to its recall, None where the set has no sample of the class. `macro_f1`
        is the mean F1 over the classes that occur in the labels or the predictions. `confusion[c][d]` counts
        the samples of class c that were called d.
        """
        confusion = self._confusion(predictions)
        hits, true, called = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
        seen = true + called > 0
        f1 = 2 * hits[seen].double() / (true + called)[seen]
        recall = {
            name: hit / count if count else None
            for name, hit, count in zip(self._class_names, hits.tolist(), true.tolist(), strict=True)
        }
        return {
            "accuracy": _accuracy(confusion),
            "macro_f1": f1.mean().item(),
            "recall": recall,
            "confusion": confusion.tolist(),
        }

    def calibration(self, probabilities: Tensor, bins: int = 10) -> list[dict[str, Any]]:
        """How often answers of a confidence are right, for `bins` equal ranges of confidence; ready for JSON.

        Of each range its `samples`, and their mean `confidence` and `accuracy`, None where it has no sample.

        >>> Examiner(torch.tensor([0, 1]), ["cat", "dog"]).calibration(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), 2)[1]
        {'samples': 2, 'confidence': 0.9, 'accuracy': 0.5}
        """
        samples, confidences, hits = self._calibration(probabilities, bins).tolist()
        return [
            {
                "samples": int(number),
                "confidence": round(confidence / number, 6) if number else None,
                "accuracy": hit / number if number else None,
            }
            for number, confidence, hit in zip(samples, confidences, hits, strict=True)
        ]

    def __repr__(self) -> str:
        return f"Examiner(sealed, {len(self._class_names)} classes)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an Examiner is neither copied, pickled nor sent: the true labels stay where they were read")


def _sealed(labels: Tensor, classes: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, int], Tensor]]:
    """The two functions that know the labels, and all that does.

    From predictions to their confusion matrix [C, C]; from probabilities and a number of ranges of confidence to the
    samples of each range, the sum of their confidences and how many are right, [3, bins].
    """
    truth = labels.detach().to("cpu", torch.int64, copy=True)
    if truth.ndim != 1:
        raise ValueError(f"labels must be one class a sample, not of shape {tuple(truth.shape)}")
    if truth.numel() and int(truth.max()) >= classes:
        raise UserError(
            f"the server's labels hold class {int(truth.max())} but there are only {classes} classes; "
            "correct them or leave them out"
        )
    marked = truth >= 0
    if not marked.any():
        raise ValueError("none of the server's samples has a label; there is nothing to examine")

    def confusion(predictions: Tensor) -> Tensor:
        answers = _answers(predictions, len(truth), classes)
        cells = truth[marked] * classes + answers[marked]
        return torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)

    def calibration(probabilities: Tensor, bins: int) -> Tensor:
        answers = _answers(probabilities, len(truth), classes)[marked]
        confidences = probabilities.detach().cpu().double().amax(dim=1)[marked]
        place = (confidences * bins).long().clamp(0, bins - 1)
        right = (answers == truth[marked]).double()
        parts = (torch.ones_like(confidences), confidences, right)
        return torch.stack([torch.bincount(place, weights=part, minlength=bins) for part in parts])

    return confusion, calibration


def _answers(predictions: Tensor, samples: int, classes: int) -> Tensor:
    predictions = predictions.detach().cpu()
    answers = predictions.argmax(dim=1) if predictions.ndim == 2 else predictions
    if answers.shape != (samples,) or answers.is_floating_point():
        raise ValueError(
            f"predictions must be {samples} class indices or rows of scores, not {predictions.dtype} of "
            f"shape {tuple(predictions.shape)}"
        )
    answers = answers.long()
    if int(answers.min()) < 0 or int(answers.max()) >= classes:
        raise ValueError(f"predictions must lie in 0..{classes - 1}")
    return answers


def _accuracy(confusion: Tensor) -> float:
    return int(confusion.diagonal().sum()) / int(confusion.sum())
