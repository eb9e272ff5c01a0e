"""Run directories of any shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from mrtf_fedml.data.evaluator import SealedEvaluator
from mrtf_fedml.training.run_directory import RunDirectory


def line(number: int, **changes: Any) -> dict[str, Any]:
    """A round as metrics.jsonl has it, scored unless `changes` say otherwise."""
    return {
        "round": number,
        "clients": [0, 1],
        "excluded_clients": [],
        "train_loss": 2.0 / (number + 1),
        "acc": 0.71,
        "acc_aggregated": 0.46,
        "acc_ensemble": 0.6,
        "acc_targets": None if number == 0 else 0.65,
        "acc_refined": 0.71,
        "client_seconds": 1.0,
        "server_seconds": 2.0,
        "uplink_bytes": 10,
        "downlink_bytes": 10,
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
) -> tuple[RunDirectory, SealedEvaluator | None]:
    """A run of random predictions, and the evaluator of its samples."""
    generator = torch.Generator().manual_seed(0)
    names = names or [f"kind {number}" for number in range(classes)]
    logits = torch.randn(samples, classes, generator=generator)
    labels = torch.randint(classes, (samples,), generator=generator)
    evaluator = SealedEvaluator(labels, names) if labelled else None
    directory = RunDirectory.create(path, "run")
    directory.write_config(
        config or {"data_args": {"dataset": "digits"}, "train_args": {"federated_optimizer": "MrTF"}}
    )
    metrics = [line(number) for number in range(3)] if metrics is None else metrics
    for entry in metrics:
        directory.append_metrics(entry)
    if ended:
        directory.write_predictions(logits, [f"file{number}.png" for number in range(samples)], names)
        marks = evaluator.report(logits) if evaluator else {"accuracy": None, "macro_f1": None, "recall": None}
        directory.write_json(
            "summary.json",
            {
                "dataset": "digits",
                "algorithm": "MrTF",
                "preset": "tuned",
                "rounds": len(metrics),
                "rounds_requested": len(metrics),
                "interrupted": False,
                "samples_labelled": samples,
                "classes": classes,
                "seconds": 9.0,
                **{key: marks[key] for key in ("accuracy", "macro_f1", "recall")},
                **summary,
            },
        )
    return directory, evaluator


def add_features(directory: RunDirectory, size: int = 6) -> None:
    """Features of the samples, near to one another where their predicted class is the same."""
    labels = np.load(directory.path / "probabilities.npy").argmax(axis=1)
    rng = np.random.default_rng(0)
    directions = np.eye(int(labels.max()) + 1, size) + 0.5
    np.save(directory.path / "features.npy", (directions[labels] + 0.02 * rng.random((len(labels), size))).astype("f4"))


def add_everything(directory: RunDirectory, clients: int = 30) -> None:
    """Write all optional files of a run directory."""
    probabilities = np.load(directory.path / "probabilities.npy")
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (clients, probabilities.shape[1])).tolist()
    names = [f"kind {number}" for number in range(probabilities.shape[1])]
    directory.write_json("split.json", {"counts": counts, "class_names": names})
    np.save(directory.path / "agreement.npy", rng.random(len(probabilities)).astype("f4"))
    add_features(directory)
    config = directory.read_config()
    config["resumes"] = {"1": {"train_args.learning_rate": {"from": 0.1, "to": 0.05}}, "2": {}}
    directory.write_config(config)
