"""What a report tells of a run; what is not known is None."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Answer:
    """The server's answer for its M samples and C classes."""

    ids: list[str]
    #: [M, C], each row a distribution.
    probabilities: Floats
    #: One name per class. A class that was never predicted in a run without labels goes by its number.
    class_names: list[str]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each sample, [M]."""
        return self.probabilities.argmax(axis=1)

    @property
    def confidences(self) -> Floats:
        """The probability of each sample's class, [M]."""
        return self.probabilities.max(axis=1)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often answers of a confidence are right, for B equal ranges of confidence, [B] each."""

    samples: npt.NDArray[np.int64]
    #: Means over a range's samples; NaN where it has none.
    confidence: Floats
    accuracy: Floats

    @property
    def expected_error(self) -> float:
        """ECE = sum_b n_b / N |accuracy_b - confidence_b|: how far confidence is from the share that is right."""
        gaps = np.nan_to_num(np.abs(self.accuracy - self.confidence))
        return float((gaps * self.samples).sum() / max(1, self.samples.sum()))

    @property
    def is_overconfident(self) -> bool:
        """Whether confidence lies above the share that is right, on the whole."""
        return float(np.nan_to_num((self.confidence - self.accuracy) * self.samples).sum()) > 0


@dataclass(frozen=True, eq=False)
class Examination:
    """The answer, marked."""

    accuracy: float
    macro_f1: float
    #: The share of each class that was found, [C]; NaN where the set has none of the class.
    recall: Floats
    #: [C, C]: samples of the class of the row that were called the class of the column.
    confusion: npt.NDArray[np.int64] | None
    calibration: Calibration | None

    @property
    def marked(self) -> int | None:
        """How many samples have a true label."""
        return None if self.confusion is None else int(self.confusion.sum())


@dataclass(frozen=True, eq=False)
class Split:
    """Who holds how much of what: [K, C] samples of each client and class."""

    counts: npt.NDArray[np.int64]
    class_names: list[str]


@dataclass(frozen=True, eq=False)
class Facts:
    """All that is known of a run."""

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    #: None before the run's end.
    summary: dict[str, Any] | None
    answer: Answer | None
    examination: Examination | None
    split: Split | None = None
    #: The share of the teachers that name the class that the sample was given, [M].
    agreement: Floats | None = None
    #: h(x) of the model that answers, [N, D], for the samples `features_index` [N]; for all M where that is None.
    features: Floats | None = None
    features_index: Indices | None = None
    #: What was changed when the run was resumed, by the index of the first round after it: each key with the values
    #: before and after, `from` and `to`.
    resumes: dict[int, dict[str, Any]] = field(default_factory=dict)

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
        return next((line for line in reversed(self.metrics) if line.get("acc") is not None), None)

    @property
    def seconds(self) -> float:
        """Of computing, over all rounds."""
        return sum((line.get("seconds_local") or 0) + (line.get("seconds_refine") or 0) for line in self.metrics)

    def _named(self, key: str, section: str, setting: str) -> str:
        return str((self.summary or {}).get(key) or self.config.get(section, {}).get(setting, "?"))
