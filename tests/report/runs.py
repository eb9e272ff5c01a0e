"""Run folders of any shape, written by the store itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mrtf_fedml.data.examiner import Examiner
from mrtf_fedml.rounds.store import RunStore


def line(number: int, **changes: Any) -> dict[str, Any]:
    """A round as metrics.jsonl has it, scored unless `changes` say otherwise."""
    return {
        "round": number,
        "clients": [0, 1],
        "left_out": [],
        "local_loss": 2.0 / (number + 1),
        "local_weight": 0.5,
        "acc": 0.71,
        "acc_aggregated": 0.46,
        "acc_ensemble": 0.6,
        "acc_targets": None if number == 0 else 0.65,
        "acc_refined": 0.71,
        "seconds_local": 1.0,
        "seconds_refine": 2.0,
        "bytes_up": 10,
        "bytes_down": 10,
        **changes,
    }


NOT_SCORED = dict.fromkeys(("acc", "acc_aggregated", "acc_ensemble", "acc_targets", "acc_refined"))


def write_run(
    path: Path,
    samples: int = 40,
    classes: int = 10,
    names: list[str] | None = None,
    metrics: list[dict[str, Any]] | None = None,
    labelled: bool = True,
    ended: bool = True,
    config: dict[str, Any] | None = None,
    **summary: Any,
) -> tuple[RunStore, Examiner | None]:
    """A run of random predictions, and the examiner of its samples."""
    generator = torch.Generator().manual_seed(0)
    names = names or [f"kind {number}" for number in range(classes)]
    logits = torch.randn(samples, classes, generator=generator)
    labels = torch.randint(classes, (samples,), generator=generator)
    examiner = Examiner(labels, names) if labelled else None
    store = RunStore.create(path, "run")
    store.write_config(config or {"data_args": {"dataset": "digits"}, "train_args": {"federated_optimizer": "MrTF"}})
    metrics = [line(number) for number in range(3)] if metrics is None else metrics
    for entry in metrics:
        store.append_metrics(entry)
    if ended:
        store.write_predictions(logits, [f"file{number}.png" for number in range(samples)], names)
        marks = examiner.report(logits) if examiner else {"accuracy": None, "macro_f1": None, "recall": None}
        store.write_json(
            "summary.json",
            {
                "dataset": "digits",
                "algorithm": "MrTF",
                "preset": "tuned",
                "rounds": len(metrics),
                "rounds_asked_for": len(metrics),
                "interrupted": False,
                "samples_labelled": samples,
                "classes": classes,
                "seconds": 9.0,
                **{key: marks[key] for key in ("accuracy", "macro_f1", "recall")},
                **summary,
            },
        )
    return store, examiner


def add_features(store: RunStore, size: int = 6) -> None:
    """Features of the samples, near to one another where their predicted class is the same."""
    labels = np.load(store.path / "probabilities.npy").argmax(axis=1)
    rng = np.random.default_rng(0)
    directions = np.eye(int(labels.max()) + 1, size) + 0.5
    np.save(store.path / "features.npy", (directions[labels] + 0.02 * rng.random((len(labels), size))).astype("f4"))


def add_everything(store: RunStore, clients: int = 30) -> None:
    """All that a run's folder may hold beside what it always holds."""
    probabilities = np.load(store.path / "probabilities.npy")
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (clients, probabilities.shape[1])).tolist()
    names = [f"kind {number}" for number in range(probabilities.shape[1])]
    store.write_json("split.json", {"counts": counts, "class_names": names})
    np.save(store.path / "agreement.npy", rng.random(len(probabilities)).astype("f4"))
    add_features(store)
    config = store.read_config()
    config["resumes"] = {"1": {"train_args.learning_rate": {"from": 0.1, "to": 0.05}}, "2": {}}
    store.write_config(config)
