"""What a report tells, read from a run's folder; what the folder lacks is None."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data.examiner import Examiner
from ..errors import UserError
from ..rounds.store import RunStore


@dataclass(frozen=True, eq=False)
class Answer:
    """The server's answer for its M samples and C classes."""

    ids: list[str]
    #: [M, C], each row a distribution.
    probabilities: npt.NDArray[np.floating]
    #: One name a class. A class that was never predicted in a run without labels goes by its number.
    class_names: list[str]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each sample, [M]."""
        return self.probabilities.argmax(axis=1)

    @property
    def confidences(self) -> npt.NDArray[np.floating]:
        """The probability of each sample's class, [M]."""
        return self.probabilities.max(axis=1)


@dataclass(frozen=True, eq=False)
class Examination:
    """The answer, marked."""

    accuracy: float
    macro_f1: float
    #: [C, C]: samples of the class of the row that were called the class of the column.
    confusion: npt.NDArray[np.int64]

    @property
    def marked(self) -> int:
        """How many samples have a true label."""
        return int(self.confusion.sum())

    @property
    def recall(self) -> npt.NDArray[np.floating]:
        """The share of each class that was found, [C]; NaN where the set has none of the class."""
        true = self.confusion.sum(axis=1)
        return np.where(true > 0, self.confusion.diagonal() / np.maximum(true, 1), np.nan)


@dataclass(frozen=True, eq=False)
class Facts:
    """All that is known of a run."""

    config: dict[str, dict[str, Any]]
    metrics: list[dict[str, Any]]
    #: None before the run's end.
    summary: dict[str, Any] | None
    answer: Answer | None
    examination: Examination | None

    @property
    def dataset(self) -> str:
        """The name of the data."""
        return self._named("dataset", "data_args", "dataset")

    @property
    def algorithm(self) -> str:
        """The name of the algorithm, without the prefix that tells ours from FedML's own."""
        return self._named("algorithm", "train_args", "federated_optimizer").rpartition(":")[2]

    @property
    def last_scored(self) -> dict[str, Any] | None:
        """The last round whose answer was scored."""
        return next((line for line in reversed(self.metrics) if line["acc"] is not None), None)

    def _named(self, key: str, section: str, setting: str) -> str:
        return str((self.summary or {}).get(key) or self.config.get(section, {}).get(setting, "?"))


def read_facts(store: RunStore, inputs: Tensor | None, examiner: Examiner | None) -> Facts:
    """The facts of the run in `store`, its answer marked by `examiner` where there is one."""
    summary_file = store.path / "summary.json"
    summary = json.loads(summary_file.read_text()) if summary_file.exists() else None
    probabilities = _probabilities(store)
    if probabilities is None:
        answer, examination = None, None
    else:
        # A model that answers at every position of a sample has several rows for each.
        if inputs is not None and len(probabilities) % len(inputs):
            raise UserError(
                f"the server's set has {len(inputs)} samples but the run in {str(store.path)!r} labelled "
                f"{len(probabilities)}; give the data that the run was made with"
            )
        examination = _examination(probabilities, summary, examiner)
        answer = _answer(store, probabilities, summary)
    return Facts(store.read_config(), store.read_metrics(), summary, answer, examination)


def _probabilities(store: RunStore) -> npt.NDArray[np.floating] | None:
    file = store.path / "probabilities.npy"
    return np.load(file) if file.exists() and (store.path / "predictions.csv").exists() else None


def _answer(store: RunStore, probabilities: npt.NDArray[np.floating], summary: Mapping[str, Any] | None) -> Answer:
    with (store.path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = {int(row["label"]): row["class_name"] for row in rows}
    classes = probabilities.shape[1]
    examined = list((summary or {}).get("recall") or {})
    names = examined if len(examined) == classes else [known.get(c, str(c)) for c in range(classes)]
    return Answer([row["id"] for row in rows], probabilities, names)


def _examination(
    probabilities: npt.NDArray[np.floating], summary: Mapping[str, Any] | None, examiner: Examiner | None
) -> Examination | None:
    marks = examiner.report(torch.from_numpy(probabilities)) if examiner is not None else summary or {}
    if marks.get("confusion") is None:
        return None
    return Examination(marks["accuracy"], marks["macro_f1"], np.array(marks["confusion"], dtype=np.int64))
