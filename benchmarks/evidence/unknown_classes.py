"""Samples of classes that no client has: how well scores of single samples separate them from the others.

    python benchmarks/evidence/unknown_classes.py RESULTS.jsonl --data FOLDER [--seeds 3]

The clients lose some classes of a setup of trust.py, the server keeps all. The area under the ROC curve (AUROC) of each
score is that of the server's samples of lost classes against its others. Class means are computed from a tenth of the
clients' samples, which nobody trains on. Runs that RESULTS.jsonl has are not repeated.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trust
from sklearn.metrics import roc_auc_score

import mrtf_fedml
from mrtf_fedml.algorithms.evaluation import EvaluationCounts
from mrtf_fedml.diagnostics.unknown_classes import compare_samples
from mrtf_fedml.models import FeatureExtractor, predict_logits_and_features

#: The number of classes that the clients lose.
SETUPS = {"digits20": 2, "digits5": 2, "wine": 1, "usps": 2, "mnist": 2, "cifar10": 2}


def scores(result: Any, folder: Path, clients: Any, held: tuple[Any, Any], server: Any) -> dict[str, Any]:
    """The scores of the server's samples, larger for unknown ones.

    Args:
        result: of the run.
        folder: the run directory.
        clients: the samples that clients train on.
        held: samples and labels of clients that nobody trains on.
        server: the server's samples.
    """
    model = result.model
    extractor = FeatureExtractor(model.net, None, model.preprocess(server[:2]))
    logits, features = predict_logits_and_features(model.net, model.preprocess(server), extractor)
    known = predict_logits_and_features(model.net, model.preprocess(held[0]), extractor)[1].double().numpy()
    features, inputs = features.double().numpy(), model.preprocess(server).flatten(1).double().numpy()
    raw = model.preprocess(held[0]).flatten(1).double().numpy()

    def class_means(rows: Any) -> Any:
        return np.stack([rows[held[1] == label].mean(axis=0) for label in np.unique(held[1])])

    def angle(rows: Any, means: Any) -> Any:
        rows, means = (part / (np.linalg.norm(part, axis=1, keepdims=True) + 1e-12) for part in (rows, means))
        return 1 - (rows @ means.T).max(axis=1)

    means, raw_means = class_means(known), class_means(raw)
    within = known - means[np.searchsorted(np.unique(held[1]), held[1])]
    variance = within.var(axis=0) + 0.05 * within.var(axis=0).mean()
    counts = json.loads((folder / "validation.json").read_text())["clients"]
    evaluations = {int(client): EvaluationCounts.from_json(each) for client, each in counts.items()}
    compared = compare_samples(evaluations, model.preprocess(server), logits.argmax(dim=1))
    assert compared is not None
    return {
        "1 - confidence": 1 - result.probabilities.max(axis=1),
        "energy": -logits.double().logsumexp(dim=1).numpy(),
        "largest logit": -logits.max(dim=1).values.numpy(),
        "distance of h(x) to class means of held-out samples": (((features[:, None] - means[None]) ** 2) / variance)
        .sum(axis=2)
        .min(axis=1),
        "angle of h(x) to class means of held-out samples": angle(features, means),
        "angle of x to class means of held-out samples": angle(inputs - raw.mean(axis=0), raw_means - raw.mean(axis=0)),
        "angle of x to the third nearest sample of a client": _third_nearest(clients, server),
        "counts in cells of x": -compared.probability_known.numpy(),
    }


def _third_nearest(clients: Any, server: Any) -> Any:
    mean, deviation = clients.mean(axis=0), clients.std(axis=0)
    scale = np.where(deviation > 1e-6, deviation, 1.0)
    own, other = (
        part / (np.linalg.norm(part, axis=1, keepdims=True) + 1e-12)
        for part in ((rows - mean) / scale for rows in (clients, server))
    )
    return 1 - np.sort(other @ own.T, axis=1)[:, -3]


def run(setup: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """The AUROC of each score, and the decisions."""
    x, y, clients, settings = trust.make(setup, seed, folder)
    common = {"progress": False, "random_seed": seed}
    complete = mrtf_fedml.label(x, clients, **common, **settings)
    rng = np.random.default_rng(1000 + seed)
    lost = rng.choice(settings.pop("classes"), SETUPS[setup], replace=False)
    training, held = [], []
    for own, labels in clients:
        rows = rng.permutation(np.flatnonzero(~np.isin(labels, lost)))
        tenth = max(1, len(rows) // 10) if len(rows) > 3 else 0
        held.append((own[rows[:tenth]], labels[rows[:tenth]]))
        if len(rows) > tenth:
            training.append((own[rows[tenth:]], labels[rows[tenth:]]))
    known = tuple(np.concatenate(parts) for parts in zip(*held, strict=True))
    per_round = min(settings.get("client_num_per_round", 10), len(training))
    settings = {**settings, "client_num_per_round": per_round}
    with tempfile.TemporaryDirectory() as scratch:
        result = mrtf_fedml.label(x, training, **common, **settings, run_dir=scratch)
        found = scores(result, Path(result.run_dir), np.concatenate([own for own, _ in training]), known, x)
    is_unknown, decided = np.isin(y, lost), result.table()["decision"].to_numpy() == "unknown"
    return {
        "setup": setup,
        "seed": seed,
        "lost": lost.tolist(),
        "auroc": {name: float(roc_auc_score(is_unknown, score)) for name, score in found.items()},
        "unknown": int(is_unknown.sum()),
        "decided": int(decided.sum()),
        "right": int((decided & is_unknown).sum()),
        "accuracy": float(np.mean(result.labels == y)),
        "stated": result.summary["estimated_accuracy"],
        "decided_without_lost_classes": complete.summary["samples_unknown"] / len(y),
    }


def table(runs: list[dict[str, Any]]) -> str:
    """One line per score, one column per setup."""
    setups = [name for name in SETUPS if any(each["setup"] == name for each in runs)]
    lines = ["| score | " + " | ".join(setups) + " | mean |", "|" + "---|" * (len(setups) + 2)]
    for name in runs[0]["auroc"]:
        cells, means = [], []
        for setup in setups:
            values = [each["auroc"][name] for each in runs if each["setup"] == setup]
            means.append(statistics.fmean(values))
            cells.append(f"{means[-1]:.3f} ± {statistics.pstdev(values):.3f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {statistics.fmean(means):.3f} |")
    for title, top, bottom in (
        ("unknown samples with the decision `unknown`", "right", "unknown"),
        ("samples with that decision that are unknown", "right", "decided"),
    ):
        cells = []
        for setup in setups:
            rows = [each for each in runs if each["setup"] == setup]
            total = sum(each[bottom] for each in rows)
            cells.append(f"{sum(each[top] for each in rows) / total:.2f}" if total else "none")
        lines.append(f"| {title} | {' | '.join(cells)} | |")
    shares = [
        statistics.fmean(each["decided_without_lost_classes"] for each in runs if each["setup"] == setup)
        for setup in setups
    ]
    lines.append(
        "| that decision where clients have all classes | " + " | ".join(f"{each:.3f}" for each in shares) + " | |"
    )
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = trust.make_parser(__doc__, seeds=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = trust.read_results(given.results)
    done = {(each["setup"], each["seed"]) for each in runs}
    for seed in range(given.seeds):
        for setup in SETUPS:
            if (setup, seed) in done or (given.data is None and trust.SETUPS[setup][0] in trust.FILES):
                continue
            runs.append(run(setup, seed, given.data))
            trust.append_results(given.results, runs[-1:])
    print(table(runs))


if __name__ == "__main__":
    main()
