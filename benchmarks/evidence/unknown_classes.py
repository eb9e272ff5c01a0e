"""Samples of classes that no client has: how well scores of single samples separate them from the others.

    python benchmarks/evidence/unknown_classes.py RESULTS.jsonl --data FOLDER [--seeds 3]

The clients lose some classes of a setup of trust.py, the server keeps all. The area under the ROC curve (AUROC) of each
score is that of the server's samples of lost classes against its others. Statistics of classes are computed from a
tenth of the clients' samples, which nobody trains on. Runs that RESULTS.jsonl has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trust
from sklearn.metrics import roc_auc_score

import mrtf_fedml
from mrtf_fedml.models import FeatureExtractor, predict_logits_and_features

#: The number of classes that the clients lose.
SETUPS = {"digits20": 2, "digits5": 2, "wine": 1, "usps": 2, "mnist": 2}


def scores(result: Any, known: tuple[Any, Any], server: Any) -> dict[str, Any]:
    """The scores of the server's samples, larger for unknown ones, from held-out samples of the clients."""
    model = result.model
    extractor = FeatureExtractor(model.net, None, model.preprocess(server[:2]))
    own, other = (predict_logits_and_features(model.net, model.preprocess(x), extractor) for x in (known[0], server))
    logits, features = other[0].double().numpy(), other[1].double().numpy()
    held = own[1].double().numpy()
    labels = np.searchsorted(model.classes, known[1])
    present = np.unique(labels)
    means = np.stack([held[labels == label].mean(axis=0) for label in present])
    within = held - means[np.searchsorted(present, labels)]
    variance = within.var(axis=0) + 0.05 * within.var(axis=0).mean()
    distances = (((features[:, None] - means[None]) ** 2) / variance).sum(axis=2).min(axis=1)
    plain = ((features[:, None] - means[None]) ** 2).sum(axis=2).min(axis=1)
    unit, unit_means = (rows / (np.linalg.norm(rows, axis=-1, keepdims=True) + 1e-12) for rows in (features, means))
    probabilities = torch.from_numpy(logits).softmax(dim=1).numpy()
    inputs, raw = (model.preprocess(x).flatten(1).double().numpy() for x in (server, known[0]))
    raw_means = np.stack([raw[labels == label].mean(axis=0) for label in present])
    raw_within = raw - raw_means[np.searchsorted(present, labels)]
    raw_variance = raw_within.var(axis=0) + 0.05 * raw_within.var(axis=0).mean()
    return {
        "1 - confidence": 1 - probabilities.max(axis=1),
        "energy": -torch.from_numpy(logits).logsumexp(dim=1).numpy(),
        "largest logit": -logits.max(axis=1),
        "distance of h(x) to class means, scaled": distances,
        "distance of h(x) to class means": plain,
        "cosine of h(x) to class means": 1 - (unit @ unit_means.T).max(axis=1),
        "distance of x to class means, scaled": (((inputs[:, None] - raw_means[None]) ** 2) / raw_variance)
        .sum(axis=2)
        .min(axis=1),
    }


def run(setup: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """The AUROC of each score."""
    x, y, clients, settings = trust.make(setup, seed, folder)
    rng = np.random.default_rng(1000 + seed)
    lost = rng.choice(settings.pop("classes"), SETUPS[setup], replace=False)
    training, held = [], []
    for own, labels in clients:
        rows = rng.permutation(np.flatnonzero(~np.isin(labels, lost)))
        tenth = max(1, len(rows) // 10) if len(rows) > 3 else 0
        held.append((own[rows[:tenth]], labels[rows[:tenth]]))
        if len(rows) > tenth:
            training.append((own[rows[tenth:]], labels[rows[tenth:]]))
    known = tuple(np.concatenate([pair[place] for pair in held]) for place in (0, 1))
    per_round = min(settings.get("client_num_per_round", 10), len(training))
    settings = {**settings, "client_num_per_round": per_round, "progress": False, "random_seed": seed}
    result = mrtf_fedml.label(x, training, **settings)
    is_unknown = np.isin(y, lost)
    found = {name: float(roc_auc_score(is_unknown, score)) for name, score in scores(result, known, x).items()}
    accuracy = float((result.labels == y)[~is_unknown].mean())
    return {"setup": setup, "seed": seed, "lost": lost.tolist(), "accuracy": accuracy, "auroc": found}


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
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    runs = [json.loads(line) for line in lines]
    done = {(each["setup"], each["seed"]) for each in runs}
    for seed in range(given.seeds):
        for setup in SETUPS:
            if (setup, seed) in done or (given.data is None and setup in ("usps", "mnist")):
                continue
            runs.append(run(setup, seed, given.data))
            with given.results.open("a") as file:
                file.write(json.dumps(runs[-1]) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
