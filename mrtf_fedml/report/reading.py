"""The facts of a run, read from its folder and marked where its labels are at hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data.examiner import Examiner
from ..errors import UserError
from ..rounds.store import RunStore
from .facts import Answer, Calibration, Examination, Facts, Floats, Indices, Split
from .material import AGREEMENT, FEATURES, FEATURES_INDEX

#: The marks of an answer, kept so that a report can be written anew where the data are not.
MARKS = "examination.json"


def read_facts(store: RunStore, inputs: Tensor | None, examiner: Examiner | None) -> Facts:
    """The facts of the run in `store`, its answer marked by `examiner` where there is one."""
    summary = _json(store, "summary.json")
    config, metrics, split = store.read_config(), store.read_metrics(), _split(store)
    resumes = {int(number): changes or {} for number, changes in store.read_resumes().items()}
    probabilities = _probabilities(store)
    if probabilities is None:
        return Facts(config, metrics, summary, None, None, split, resumes=resumes)
    # A model that answers at every position of a sample has several rows for each.
    if inputs is not None and len(probabilities) % len(inputs):
        raise UserError(
            f"the server's set has {len(inputs)} samples but the run in {str(store.path)!r} labelled "
            f"{len(probabilities)}; give the data that the run was made with"
        )
    marks = _marked(probabilities, examiner) if examiner is not None else _kept(store, summary)
    answer = _answer(store, probabilities, list((summary or {}).get("recall") or marks.get("recall") or {}), split)
    agreement = _array(store, AGREEMENT, len(probabilities))
    features, known = _features(store, len(probabilities))
    return Facts(config, metrics, summary, answer, _examination(marks), split, agreement, features, known, resumes)


def keep_marks(store: RunStore, facts: Facts) -> None:
    """Write down how the answer was marked; scores alone, from which no label can be read that they did not tell."""
    examination = facts.examination
    if facts.answer is None or examination is None or examination.confusion is None:
        return
    calibration = examination.calibration
    marks = {
        "accuracy": examination.accuracy,
        "macro_f1": examination.macro_f1,
        "recall": dict(zip(facts.answer.class_names, _plain(examination.recall), strict=True)),
        "confusion": examination.confusion.tolist(),
        "calibration": calibration
        and [
            {"samples": samples, "confidence": confidence, "accuracy": accuracy}
            for samples, confidence, accuracy in zip(
                calibration.samples.tolist(),
                _plain(calibration.confidence),
                _plain(calibration.accuracy),
                strict=True,
            )
        ],
    }
    store.write_text(MARKS, json.dumps(marks) + "\n")


def _marked(probabilities: Floats, examiner: Examiner) -> dict[str, Any]:
    rows = torch.from_numpy(probabilities)
    return {**examiner.report(rows), "calibration": examiner.calibration(rows)}


def _kept(store: RunStore, summary: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The marks of an earlier report while they are those of this answer, else what the summary tells."""
    marks = summary or {}
    # Broken ones are of no answer at all.
    kept = store.read_json(MARKS)
    return kept if kept and kept.get("accuracy") == marks.get("accuracy") is not None else marks


def _examination(marks: Mapping[str, Any]) -> Examination | None:
    if marks.get("accuracy") is None or not marks.get("recall"):
        return None
    confusion, bins = marks.get("confusion"), marks.get("calibration")
    calibration = None
    if bins:
        samples = np.array([part["samples"] for part in bins], dtype=np.int64)
        confidence, accuracy = (
            np.array([part[key] for part in bins], dtype=float) for key in ("confidence", "accuracy")
        )
        calibration = Calibration(samples, confidence, accuracy)
    return Examination(
        marks["accuracy"],
        marks["macro_f1"],
        np.array(list(marks["recall"].values()), dtype=float),
        None if confusion is None else np.array(confusion, dtype=np.int64),
        calibration,
    )


def _probabilities(store: RunStore) -> npt.NDArray[np.floating] | None:
    file = store.path / "probabilities.npy"
    return np.load(file) if file.exists() and (store.path / "predictions.csv").exists() else None


def _answer(store: RunStore, probabilities: Floats, examined: list[str], split: Split | None) -> Answer:
    with (store.path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = {int(row["label"]): row["class_name"] for row in rows}
    classes = probabilities.shape[1]
    fitting = (names for names in (examined, split.class_names if split else []) if len(names) == classes)
    names = next(fitting, None) or [known.get(c, str(c)) for c in range(classes)]
    return Answer([row["id"] for row in rows], probabilities, names)


def _split(store: RunStore) -> Split | None:
    kept = _json(store, "split.json")
    if kept is None:
        return None
    counts = np.array(kept["counts"], dtype=np.int64)
    return Split(counts, [str(name) for name in kept["class_names"]]) if counts.ndim == 2 and counts.size else None


def _array(store: RunStore, name: str, samples: int) -> Floats | None:
    """An array with a row per sample. One of another length is of another answer, and is left out."""
    file = store.path / name
    if not file.exists():
        return None
    array = np.load(file, mmap_mode="r")
    return array if len(array) == samples else None


def _features(store: RunStore, samples: int) -> tuple[Floats | None, Indices | None]:
    """The features, and of which samples they are; both None where they are of another answer."""
    if not (store.path / FEATURES_INDEX).exists():
        return _array(store, FEATURES, samples), None
    known = np.load(store.path / FEATURES_INDEX)
    fits = known.ndim == 1 and len(known) > 0 and 0 <= known.min() <= known.max() < samples
    features = _array(store, FEATURES, len(known)) if fits else None
    return features, None if features is None else known


def _json(store: RunStore, name: str) -> dict[str, Any] | None:
    file = store.path / name
    return json.loads(file.read_text()) if file.exists() else None


def _plain(values: Floats) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [None if np.isnan(value) else float(value) for value in values]
