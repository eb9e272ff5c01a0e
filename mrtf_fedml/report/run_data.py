"""The data of a run that a report shows, read from the run directory; what is not known is None."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data.evaluator import SealedEvaluator
from ..data.formatting import unescape_formula
from ..errors import UserError
from ..training.run_directory import RunDirectory
from .artifacts import AGREEMENT, FEATURES, FEATURES_INDEX, Floats

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions for the server's M samples in C classes."""

    ids: list[str]
    #: [M, C], each row a distribution.
    probabilities: Floats
    #: One name per class. A class that was never predicted in a run without labels has its number as its name.
    class_names: list[str]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each sample, [M]."""
        return self.probabilities.argmax(axis=1)

    @property
    def confidences(self) -> Floats:
        """The probability of each sample's class, [M]."""
        return self.probabilities.max(axis=1)

    @property
    def least_confident(self) -> Indices:
        """The samples in the order in which to check or to label them: by confidence, then by index.

        Compared with other orders in docs/lab/estimates.md.
        """
        return np.argsort(self.confidences, kind="stable")


@dataclass(frozen=True, eq=False)
class Calibration:
    """The accuracy of the predictions by confidence, for B equal ranges of confidence, [B] each."""

    samples: npt.NDArray[np.int64]
    #: Means over the samples of a range; NaN without samples.
    confidence: Floats
    accuracy: Floats

    @property
    def expected_error(self) -> float:
        """ECE = sum_b n_b / N |accuracy_b - confidence_b|, the expected calibration error."""
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float((gaps * self.samples).sum() / max(1, self.samples.sum()))

    @property
    def is_overconfident(self) -> bool:
        """Whether the mean confidence is above the accuracy."""
        return float(np.nan_to_num((self.confidence - self.accuracy) * self.samples).sum()) > 0


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of the predictions."""

    accuracy: float
    macro_f1: float
    #: The recall of each class, [C]; NaN for a class without samples.
    recall: Floats
    #: [C, C]: samples of the class of the row that were predicted as the class of the column.
    confusion: npt.NDArray[np.int64] | None
    calibration: Calibration | None

    @property
    def labelled_samples(self) -> int | None:
        """The number of samples with a true label."""
        return None if self.confusion is None else int(self.confusion.sum())


@dataclass(frozen=True, eq=False)
class ClientCounts:
    """The numbers of samples per client and class, [K, C]."""

    counts: npt.NDArray[np.int64]
    class_names: list[str]
    #: One per client, where the data name their owners.
    names: list[str] | None = None


@dataclass(frozen=True, eq=False)
class RunData:
    """All data of a run."""

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    #: None before the run's end.
    summary: dict[str, Any] | None
    predictions: Predictions | None
    evaluation: Evaluation | None
    client_counts: ClientCounts | None = None
    #: The fraction of the teachers that predict the sample's label, [M].
    agreement: Floats | None = None
    #: h(x) of the final model, [N, D], for the samples `features_index` [N]; for all M if that is None.
    features: Floats | None = None
    features_index: Indices | None = None
    #: The settings changed at a resume, by the index of the next round: each key with the values `from` and `to`.
    resumes: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self._name("dataset", "data_args", "dataset")

    @property
    def algorithm(self) -> str:
        """The name of the algorithm, without the prefix that distinguishes it from FedML's own."""
        return self._name("algorithm", "train_args", "federated_optimizer").rpartition(":")[2]

    @property
    def metric_labels(self) -> dict[str, str]:
        """The labels of the algorithm's metrics by key; empty before the end of the run."""
        return (self.summary or {}).get("metric_labels") or {}

    @property
    def last_scored(self) -> dict[str, Any] | None:
        """The last round whose predictions were scored."""
        return next((line for line in reversed(self.metrics) if line.get("acc") is not None), None)

    @property
    def seconds(self) -> float:
        """Computing time over all rounds, in seconds."""
        return sum((line.get("client_seconds") or 0) + (line.get("server_seconds") or 0) for line in self.metrics)

    def _name(self, key: str, section: str, setting: str) -> str:
        return str((self.summary or {}).get(key) or self.config.get(section, {}).get(setting, "?"))


#: The scores of the predictions, stored so that a report can be written again without the data.
EVALUATION_FILE = "evaluation.json"


def read_run(directory: RunDirectory, inputs: Tensor | None, evaluator: SealedEvaluator | None) -> RunData:
    """The data of the run in `directory`, with its predictions scored by `evaluator` if given."""
    summary = _read_json(directory, "summary.json")
    config, metrics, client_counts = directory.read_config(), directory.read_metrics(), _read_client_counts(directory)
    resumes = {int(number): changes or {} for number, changes in directory.read_resumes().items()}
    probabilities = _read_probabilities(directory)
    if probabilities is None:
        return RunData(config, metrics, summary, None, None, client_counts, resumes=resumes)
    # A model that predicts every position of a sample has several rows per sample.
    if inputs is not None and len(probabilities) % len(inputs):
        raise UserError(
            f"the server's set has {len(inputs)} samples but the run in {str(directory.path)!r} labelled "
            f"{len(probabilities)}; use the data of the run"
        )
    scores = _evaluate(probabilities, evaluator) if evaluator is not None else _read_evaluation(directory, summary)
    scored_names = list((summary or {}).get("recall") or scores.get("recall") or {})
    predictions = _read_predictions(directory, probabilities, scored_names, client_counts)
    agreement = _read_array(directory, AGREEMENT, len(probabilities))
    features, features_index = _read_features(directory, len(probabilities))
    return RunData(
        config,
        metrics,
        summary,
        predictions,
        _parse_evaluation(scores),
        client_counts,
        agreement,
        features,
        features_index,
        resumes,
    )


def write_evaluation(directory: RunDirectory, data: RunData) -> None:
    """Write evaluation.json: the scores of the predictions, without labels."""
    evaluation = data.evaluation
    if data.predictions is None or evaluation is None or evaluation.confusion is None:
        return
    calibration = evaluation.calibration
    scores = {
        "accuracy": evaluation.accuracy,
        "macro_f1": evaluation.macro_f1,
        "recall": dict(zip(data.predictions.class_names, _nan_to_none(evaluation.recall), strict=True)),
        "confusion": evaluation.confusion.tolist(),
        "calibration": calibration
        and [
            {"samples": samples, "confidence": confidence, "accuracy": accuracy}
            for samples, confidence, accuracy in zip(
                calibration.samples.tolist(),
                _nan_to_none(calibration.confidence),
                _nan_to_none(calibration.accuracy),
                strict=True,
            )
        ],
    }
    directory.write_text(EVALUATION_FILE, json.dumps(scores) + "\n")


def _evaluate(probabilities: Floats, evaluator: SealedEvaluator) -> dict[str, Any]:
    rows = torch.from_numpy(probabilities)
    return {**evaluator.report(rows), "calibration": evaluator.calibration(rows)}


def _read_evaluation(directory: RunDirectory, summary: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The stored scores if they belong to these predictions, else those of the summary."""
    scores = summary or {}
    # None if the file is damaged.
    stored = directory.read_json(EVALUATION_FILE)
    return stored if stored and stored.get("accuracy") == scores.get("accuracy") is not None else scores


def _parse_evaluation(scores: Mapping[str, Any]) -> Evaluation | None:
    if scores.get("accuracy") is None or not scores.get("recall"):
        return None
    confusion, bins = scores.get("confusion"), scores.get("calibration")
    calibration = None
    if bins:
        samples = np.array([part["samples"] for part in bins], dtype=np.int64)
        confidence, accuracy = (
            np.array([part[key] for part in bins], dtype=float) for key in ("confidence", "accuracy")
        )
        calibration = Calibration(samples, confidence, accuracy)
    return Evaluation(
        scores["accuracy"],
        scores["macro_f1"],
        np.array(list(scores["recall"].values()), dtype=float),
        None if confusion is None else np.array(confusion, dtype=np.int64),
        calibration,
    )


def _read_probabilities(directory: RunDirectory) -> npt.NDArray[np.floating] | None:
    file = directory.path / "probabilities.npy"
    return np.load(file) if file.exists() and (directory.path / "predictions.csv").exists() else None


def _read_predictions(
    directory: RunDirectory, probabilities: Floats, scored_names: list[str], client_counts: ClientCounts | None
) -> Predictions:
    with (directory.path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = {int(row["label"]): unescape_formula(row["class_name"]) for row in rows}
    classes = probabilities.shape[1]
    candidates = (
        names for names in (scored_names, client_counts.class_names if client_counts else []) if len(names) == classes
    )
    names = next(candidates, None) or [known.get(c, str(c)) for c in range(classes)]
    return Predictions([unescape_formula(row["id"]) for row in rows], probabilities, names)


def _read_client_counts(directory: RunDirectory) -> ClientCounts | None:
    stored = _read_json(directory, "split.json")
    if stored is None:
        return None
    counts = np.array(stored["counts"], dtype=np.int64)
    if counts.ndim != 2 or not counts.size:
        return None
    names: Any = stored.get("client_names")
    has_names = isinstance(names, list) and len(names) == len(counts)
    return ClientCounts(
        counts, [str(name) for name in stored["class_names"]], [str(name) for name in names] if has_names else None
    )


def _read_array(directory: RunDirectory, name: str, samples: int) -> Floats | None:
    """An array with one row per sample; None if its length shows that it belongs to other predictions."""
    file = directory.path / name
    if not file.exists():
        return None
    array = np.load(file, mmap_mode="r")
    return array if len(array) == samples else None


def _read_features(directory: RunDirectory, samples: int) -> tuple[Floats | None, Indices | None]:
    """The features and the indices of their samples; both None if they belong to other predictions."""
    if not (directory.path / FEATURES_INDEX).exists():
        return _read_array(directory, FEATURES, samples), None
    known = np.load(directory.path / FEATURES_INDEX)
    fits = known.ndim == 1 and len(known) > 0 and 0 <= known.min() <= known.max() < samples
    features = _read_array(directory, FEATURES, len(known)) if fits else None
    return features, None if features is None else known


def _read_json(directory: RunDirectory, name: str) -> dict[str, Any] | None:
    file = directory.path / name
    return json.loads(file.read_text()) if file.exists() else None


def _nan_to_none(values: Floats) -> list[float | None]:
    """The values for JSON, which has no NaN."""
    return [None if np.isnan(value) else float(value) for value in values]
