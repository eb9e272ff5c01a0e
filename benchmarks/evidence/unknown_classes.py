"""Samples of classes that no client has: how well scores of single samples separate them from the others.

    python benchmarks/evidence/unknown_classes.py RESULTS.jsonl --data FOLDER [--seeds 3]

The clients lose some classes of a setup of trust.py, the server keeps all. The area under the ROC curve (AUROC) of each
score is that of the server's samples of lost classes against its others. Class means are computed from a tenth of the
clients' samples, which nobody trains on. Runs that RESULTS.jsonl has are not repeated.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trust
from sklearn.metrics import roc_auc_score

import mrtf_fedml
from mrtf_fedml.diagnostics.unknown_classes import find_unknown_samples, novelty_scores
from mrtf_fedml.models import FeatureExtractor, predict_logits_and_features

#: The number of classes that the clients lose.
SETUPS = {"digits20": 2, "digits5": 2, "wine": 1, "usps": 2, "mnist": 2}


def scores(result: Any, clients: tuple[Any, Any], held: tuple[Any, Any], server: Any) -> dict[str, Any]:
    """The scores of the server's samples, larger for unknown ones.

    Args:
        result: of the run.
        clients: the samples and labels that clients train on.
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
    own = torch.from_numpy(clients[0])
    return {
        "1 - confidence": 1 - result.probabilities.max(axis=1),
        "energy": -logits.double().logsumexp(dim=1).numpy(),
        "largest logit": -logits.max(dim=1).values.numpy(),
        "distance of h(x) to class means of held-out samples": (((features[:, None] - means[None]) ** 2) / variance)
        .sum(axis=2)
        .min(axis=1),
        "angle of h(x) to class means of held-out samples": angle(features, means),
        "angle of x to class means of held-out samples": angle(inputs - raw.mean(axis=0), raw_means - raw.mean(axis=0)),
        "angle of x to the third nearest sample of a client": novelty_scores(own, torch.from_numpy(server))[1],
    }


def run(setup: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """The AUROC of each score, and the decisions."""
    x, y, clients, settings = trust.make(setup, seed, folder)
    every = np.concatenate([own for own, _ in clients])
    false = find_unknown_samples(torch.from_numpy(every), torch.from_numpy(x))
    rng = np.random.default_rng(1000 + seed)
    lost = rng.choice(settings.pop("classes"), SETUPS[setup], replace=False)
    training, held = [], []
    for own, labels in clients:
        rows = rng.permutation(np.flatnonzero(~np.isin(labels, lost)))
        tenth = max(1, len(rows) // 10) if len(rows) > 3 else 0
        held.append((own[rows[:tenth]], labels[rows[:tenth]]))
        if len(rows) > tenth:
            training.append((own[rows[tenth:]], labels[rows[tenth:]]))
    known, trained = (tuple(np.concatenate(parts) for parts in zip(*pairs, strict=True)) for pairs in (held, training))
    per_round = min(settings.get("client_num_per_round", 10), len(training))
    settings = {**settings, "client_num_per_round": per_round, "progress": False, "random_seed": seed}
    result = mrtf_fedml.label(x, training, **settings)
    is_unknown, decided = np.isin(y, lost), np.isin(np.arange(len(y)), result.summary["unknown_samples"] or [])
    found = scores(result, trained, known, x)
    return {
        "setup": setup,
        "seed": seed,
        "lost": lost.tolist(),
        "auroc": {name: float(roc_auc_score(is_unknown, score)) for name, score in found.items()},
        "unknown": int(is_unknown.sum()),
        "decided": int(decided.sum()),
        "right": int((decided & is_unknown).sum()),
        "decided_without_lost_classes": 0.0 if false is None else float(false.double().mean()),
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
        ("unknown samples that are listed", "right", "unknown"),
        ("listed samples that are unknown", "right", "decided"),
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
        "| samples listed where clients have all classes | " + " | ".join(f"{each:.3f}" for each in shares) + " | |"
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
            if (setup, seed) in done or (given.data is None and setup in ("usps", "mnist")):
                continue
            runs.append(run(setup, seed, given.data))
            trust.append_results(given.results, runs[-1:])
    print(table(runs))


if __name__ == "__main__":
    main()
