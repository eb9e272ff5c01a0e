"""Different models per client against each model alone: the figures of docs/lab/existing_models.md.

    python benchmarks/evidence/different_models.py FILE.npz|digits [SEEDS]

FILE.npz is usps.npz (setups.py). Up to 2000 samples are partitioned over 12 clients with three classes each,
a third of them per round, 10 rounds of MrTF (tuned, base FedAvg); the server labels 500 samples. With both
models, half of the clients have each.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mrtf_fedml import label
from mrtf_fedml.config import DataSettings
from mrtf_fedml.data.sources import load_source

CLIENTS, SAMPLES, SERVER, ROUNDS = 12, 2000, 500, 10
VARIANTS: dict[str, dict[str, Any]] = {
    "lenet and mlp": {"models": {"lenet": "lenet", "mlp": "mlp"}},
    "lenet, its own clients only": {"model": "lenet", "clients": slice(0, None, 2)},
    "mlp, its own clients only": {"model": "mlp", "clients": slice(1, None, 2)},
    "lenet, all clients": {"model": "lenet"},
    "mlp, all clients": {"model": "mlp"},
}
SETTINGS: dict[str, Any] = {
    "preset": "tuned",
    "base": "FedAvg",
    # Different models cannot have it.
    "loss_momentum": False,
    "epochs": 2,
    "batch_size": 10,
    "learning_rate": 0.03,
    "hidden_size": 256,
    "refine_steps": 100,
    "threads": 1,
    "rounds": ROUNDS,
    "progress": False,
}


def partition(y: np.ndarray, seed: int) -> list[np.ndarray]:
    """The samples of each client: three classes each, and as many of each class."""
    generator = np.random.default_rng(seed)
    classes = np.concatenate([generator.permutation(10) for _ in range(-(-3 * CLIENTS // 10))])[: 3 * CLIENTS]
    owners = np.arange(3 * CLIENTS) % CLIENTS
    rows: list[list[int]] = [[] for _ in range(CLIENTS)]
    for label_index in range(10):
        own = owners[classes == label_index]
        for client, part in zip(own, np.array_split(np.flatnonzero(y == label_index), len(own)), strict=True):
            rows[client] += part.tolist()
    return [np.array(own) for own in rows]


def main(file: str, seeds: str = "3") -> None:
    """Print one line per variant: final accuracy, mean over the rounds, and the teachers' ensemble."""
    if file == "digits":
        source = load_source(DataSettings(dataset=file))
        data = {key: getattr(source, key) for key in ("x_train", "y_train", "x_test", "y_test")}
    else:
        data = dict(np.load(file))
    results: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    for seed in range(int(seeds)):
        order = np.random.default_rng(seed).permutation(len(data["x_train"]))[:SAMPLES]
        x, y = data["x_train"][order], data["y_train"][order]
        server = np.random.default_rng(seed).permutation(len(data["x_test"]))[:SERVER]
        clients = [(x[rows], y[rows]) for rows in partition(y, seed)]
        for name, settings in VARIANTS.items():
            variant = dict(settings)
            own = clients[variant.pop("clients", slice(None))]
            result = label(
                data["x_test"][server],
                own,
                classes=range(10),
                client_num_per_round=len(own) // 3,
                y_server=data["y_test"][server],
                random_seed=seed,
                **SETTINGS,
                **variant,
            )
            metrics = result.metrics
            results[name].append(
                [
                    result.accuracy or 0.0,
                    metrics["acc"].mean(),
                    metrics["acc_ensemble"].iloc[-1],
                    metrics["acc_aggregated"].iloc[-1],
                ]
            )
            print(seed, name, np.round(results[name][-1], 3), flush=True)
    print("model | final | mean over the rounds | ensemble of the last round | before refining")
    for name, rows in results.items():
        mean, deviation = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) if len(rows) > 1 else np.zeros(4)
        print(name, *(f"{one:.3f} ± {other:.3f}" for one, other in zip(mean, deviation, strict=True)), sep=" | ")


if __name__ == "__main__":
    main(*sys.argv[1:])
