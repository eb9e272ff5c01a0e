"""The true labels of the server's set, sealed: they can score predictions and cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import UserError


class SealedEvaluator:
    """Scores predictions for the server's set without revealing a label.

    The labels are held in a closure and not in an attribute, so that listing, printing, copying or sending the
    evaluator cannot leak them. Samples whose label is -1 are not scored.

    >>> evaluator = SealedEvaluator(torch.tensor([0, 1, 1]), ["cat", "dog"])
    >>> round(evaluator.score(torch.tensor([0, 1, 0])), 3)
    0.667
    """

    __slots__ = ("_calibration", "_class_names", "_confusion")

    def __init__(self, labels: Tensor, class_names: Sequence[str]) -> None:
        self._class_names = tuple(class_names)
        self._confusion, self._calibration = _make_scorers(labels, len(self._class_names))

    def score(self, predictions: Tensor) -> float:
        """Accuracy of predictions: class indices [M], or scores [M, C] whose argmax is the class."""
        return _accuracy(self._confusion(predictions))

    def report(self, predictions: Tensor) -> dict[str, Any]:
        """Accuracy, macro-F1, recall per class and the confusion matrix, as JSON values.

        `recall` maps each class name to its recall, or to None if the set has no sample of the class. `macro_f1`
        is the mean F1 over the classes that occur in the labels or the predictions. `confusion[c][d]` counts
        the samples of class c that were predicted as d.
        """
        confusion = self._confusion(predictions)
        hits, true, predicted = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
        occurs = true + predicted > 0
        f1 = 2 * hits[occurs].double() / (true + predicted)[occurs]
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
        """Accuracy by confidence, for `bins` equal ranges of confidence, as JSON values.

        Each range has its number of `samples` and their mean `confidence` and `accuracy` (None without samples).

        >>> evaluator = SealedEvaluator(torch.tensor([0, 1]), ["cat", "dog"])
        >>> evaluator.calibration(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), bins=2)[1]
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
        return f"SealedEvaluator({len(self._class_names)} classes)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a SealedEvaluator cannot be copied, pickled or sent: the true labels must not leave it")


def _make_scorers(labels: Tensor, classes: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, int], Tensor]]:
    """The two functions that have access to the labels.

    The first maps predictions to their confusion matrix [C, C]. The second maps probabilities and a number of bins to
    [3, bins]: per confidence range the number of samples, the sum of their confidences and the number of correct ones.
    """
    true_labels = labels.detach().to("cpu", torch.int64, copy=True)
    if true_labels.ndim != 1:
        raise ValueError(f"labels must be one class per sample, not of shape {tuple(true_labels.shape)}")
    if true_labels.numel() and int(true_labels.max()) >= classes:
        raise UserError(
            f"the server's labels hold class {int(true_labels.max())} but there are only {classes} classes; "
            "correct them or leave them out"
        )
    has_label = true_labels >= 0
    if not has_label.any():
        raise ValueError("none of the server's samples has a label; there is nothing to score")

    def confusion(predictions: Tensor) -> Tensor:
        predicted = _predicted_classes(predictions, len(true_labels), classes)
        cells = true_labels[has_label] * classes + predicted[has_label]
        return torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)

    def calibration(probabilities: Tensor, bins: int) -> Tensor:
        predicted = _predicted_classes(probabilities, len(true_labels), classes)[has_label]
        confidences = probabilities.detach().cpu().double().amax(dim=1)[has_label]
        bin_index = (confidences * bins).long().clamp(0, bins - 1)
        correct = (predicted == true_labels[has_label]).double()
        parts = (torch.ones_like(confidences), confidences, correct)
        return torch.stack([torch.bincount(bin_index, weights=part, minlength=bins) for part in parts])

    return confusion, calibration


def _predicted_classes(predictions: Tensor, samples: int, classes: int) -> Tensor:
    predictions = predictions.detach().cpu()
    predicted = predictions.argmax(dim=1) if predictions.ndim == 2 else predictions
    if predicted.shape != (samples,) or predicted.is_floating_point():
        raise ValueError(
            f"predictions must be {samples} class indices or rows of scores, not {predictions.dtype} of "
            f"shape {tuple(predictions.shape)}"
        )
    predicted = predicted.long()
    if int(predicted.min()) < 0 or int(predicted.max()) >= classes:
        raise ValueError(f"predictions must be in 0..{classes - 1}")
    return predicted


def _accuracy(confusion: Tensor) -> float:
    return int(confusion.diagonal().sum()) / int(confusion.sum())
