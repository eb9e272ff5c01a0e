"""What one lying silo can do to `preset: tuned`: accuracy with each lie, beside the federation without that silo.

    python benchmarks/attacks.py --out attacks.jsonl            # runs what the file does not have yet
    python benchmarks/attacks.py --out attacks.jsonl --table    # prints the table of docs/explanation/security.md
    python benchmarks/attacks.py --out honest.jsonl --honest usps.npz             # what the defence costs without a lie
    python benchmarks/attacks.py --out honest.jsonl --honest usps.npz --table

scikit-learn's digits (1198 at the silos, 599 on the server), all silos in every round. One process simulates all silos;
the last silo's update is replaced after its client rule, so that the server receives what it would receive over a
network. The server is given nothing that a server across silos does not have: no class counts, no client sample.
A lie is harmless if the accuracy stays within 0.05 of the federation without that silo, and the stated estimate within
0.15 of the accuracy; otherwise a warning in summary.json must name the silo.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mrtf_fedml
from mrtf_fedml.algorithms import ClientTask, ClientUpdate, MrTF
from mrtf_fedml.algorithms.mrtf.client_validation import COUNTS
from mrtf_fedml.algorithms.types import Weights
from mrtf_fedml.fedml_bridge import session
from mrtf_fedml.training import outliers

#: (silos, partition)
SETUPS = ((5, "iid"), (10, "iid"), (5, "dirichlet"), (10, "dirichlet"))
SEEDS = (0, 1, 2)
ROUNDS = 12
#: The bar: accuracy lost against the federation without the silo.
HARMLESS = 0.05
#: The bar of the estimate: how far a stated one may be from the accuracy without a warning that names the silo.
MAX_ERROR = 0.15
#: No lie, and no such silo.
HONEST, WITHOUT = "honest", "without the silo"

#: From the task, the honest update and another silo's update of the same round: what the silo sends.
Lie = Callable[[ClientTask, ClientUpdate, ClientUpdate | None], ClientUpdate]


def move(task: ClientTask, weights: Weights, factor: float, norm: float | None = None) -> dict[str, Tensor]:
    """theta_t + factor * (weights - theta_t); with a norm, the difference is first brought to that norm."""
    deltas = {name: weights[name].double() - value.double() for name, value in task.weights.items()}
    if norm is not None:
        factor *= norm / max(size(deltas), 1e-12)
    return {
        name: (task.weights[name].double() + factor * delta).to(task.weights[name]) for name, delta in deltas.items()
    }


def size(tensors: Weights) -> float:
    """The norm of all tensors together."""
    return float(torch.sqrt(torch.stack([(value.double() ** 2).sum() for value in tensors.values()]).sum()))


def update_norm(task: ClientTask, update: ClientUpdate) -> float:
    """||theta_k - theta_t||."""
    return size({name: update.weights[name].double() - value.double() for name, value in task.weights.items()})


def permuted_head(factor: float, order: Callable[[Tensor], Tensor]) -> Lie:
    """The honest model with permuted classes, at `factor` times the norm of the honest update."""

    def lie(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
        weights = dict(update.weights)
        for name in list(weights)[-2:]:
            weights[name] = order(weights[name])
        return replace(update, weights=move(task, weights, factor, update_norm(task, update)))

    return lie


def rotate(tensor: Tensor) -> Tensor:
    """Class c becomes c + 1."""
    return tensor.roll(1, dims=0)


def swap(tensor: Tensor) -> Tensor:
    """Classes 3 and 8 swapped."""
    order = torch.arange(len(tensor))
    order[3], order[8] = 8, 3
    return tensor[order]


def scaled(factor: float) -> Lie:
    """The honest update times a factor."""
    return lambda task, update, other: replace(update, weights=move(task, update.weights, factor))


def zeros(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
    """A model of zeros."""
    return replace(update, weights={name: torch.zeros_like(value) for name, value in update.weights.items()})


def huge(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
    """Finite, and the average is not."""
    return replace(update, weights={name: torch.full_like(value, 1e30) for name, value in update.weights.items()})


def copied(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
    """Another silo's model."""
    return update if other is None else replace(update, weights=other.weights)


def noise(factor: float) -> Lie:
    """A random direction, at `factor` times the norm of the honest update."""

    def lie(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
        generator = torch.Generator().manual_seed(task.round)
        drawn = {name: value + torch.randn(value.shape, generator=generator) for name, value in task.weights.items()}
        return replace(update, weights=move(task, drawn, factor, update_norm(task, update)))

    return lie


def one_class(factor: float) -> Lie:
    """Every sample gets class 0: its bias grows, at `factor` times the norm of the honest update."""

    def lie(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
        weights = dict(task.weights)
        name = list(weights)[-1]
        weights[name] = weights[name].clone()
        weights[name][0] += 1.0
        return replace(update, weights=move(task, weights, factor, update_norm(task, update)))

    return lie


def variates(factor: float) -> Lie:
    """Honest weights; the rest of the payload, Scaffold's variates, times a factor."""
    return lambda task, update, other: replace(
        update,
        payload={name: value * factor if name in task.weights else value for name, value in update.payload.items()},
    )


def false_loss(loss: float) -> Lie:
    """Honest weights; a false training loss."""
    return lambda task, update, other: replace(update, loss=loss)


def false_measurement(value: float) -> Lie:
    """Honest weights; a false number of those that determine the coefficient of the control variates."""
    return lambda task, update, other: replace(
        update,
        payload={
            name: torch.full_like(tensor, value) if name.startswith("scaffold/") else tensor
            for name, tensor in update.payload.items()
        },
    )


def counts(times: float, base: float, refined: float, right: float) -> Lie:
    """Honest weights; false validation results, of `times` the silo's samples.

    Args:
        times: 1 claims all samples of the silo, ten times as many as it holds out.
        base: in every round, the fraction that the base's model predicts right.
        refined: that of the refined model.
        right: after the last round, the fraction that the model that predicts gets right.
    """

    def lie(task: ClientTask, update: ClientUpdate, other: ClientUpdate | None) -> ClientUpdate:
        samples, payload = int(times * update.samples), dict(update.payload)
        if COUNTS in payload:
            payload[COUNTS] = torch.tensor([samples, int(base * samples), int(refined * samples)])
        evaluation = "evaluation/confusion"
        if evaluation in payload:
            classes = len(payload[evaluation])
            table = torch.zeros_like(payload[evaluation])
            # Each class has as many samples, and the errors are the next class.
            of_class = samples // classes
            correct = int(right * of_class)
            for label in range(classes):
                table[label, label] = correct
                table[label, (label + 1) % classes] = of_class - correct
            confidence = torch.zeros_like(payload["evaluation/confidence"])
            confidence[:, :, -2] = torch.tensor([of_class - correct, correct])
            true_class = torch.zeros_like(payload["evaluation/true_class"])
            true_class[-2] = classes * of_class
            payload |= {
                evaluation: table,
                "evaluation/confidence": confidence,
                "evaluation/true_class": true_class,
            }
        return replace(update, payload=payload)

    return lie


def both(one: Lie, other: Lie) -> Lie:
    """Two lies at once."""
    return lambda task, update, last: other(task, one(task, update, last), last)


def late(lie: Lie, rounds: int) -> Lie:
    """A lie in the last rounds only."""
    return lambda task, update, last: update if task.round < ROUNDS - rounds else lie(task, update, last)


def with_matching_variate(task: ClientTask, honest: ClientUpdate, lie: ClientUpdate) -> ClientUpdate:
    """The lie with the control variate that follows from its weights, so that the two do not contradict each other."""
    names = [name for name in honest.payload if name in task.weights]
    if not names or any(lie.payload[name] is not honest.payload[name] for name in names):
        return lie
    share = float(task.payload.get("scaffold/coefficient", 1.0))
    none = torch.zeros(())
    steps = size({name: task.weights[name] - honest.weights[name] for name in names})
    gradients = size({name: honest.payload[name] + share * task.payload.get(name, none) for name in names})
    # Over the number of steps and the learning rate.
    moved = steps / max(gradients, 1e-12)
    return replace(
        lie,
        payload={
            name: value + (honest.weights[name] - lie.weights[name]) / moved if name in names else value
            for name, value in lie.payload.items()
        },
    )


class PermutedLabels:
    """A silo's samples with permuted labels."""

    def __init__(self, data: Any, order: Callable[[Tensor], Tensor]) -> None:
        self._data, self._order = data, order
        self.samples = data.samples

    @property
    def labels(self) -> Tensor:
        """All of them, [N]."""
        return self._order(self._data.labels)

    def part(self, indices: Tensor) -> PermutedLabels:
        """Those of these indices."""
        return PermutedLabels(self._data.part(indices), self._order)

    def shuffled_batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """As the silo's own."""
        return ((x, self._order(y)) for x, y in self._data.shuffled_batches(generator))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((x, self._order(y)) for x, y in self._data)


#: Lies in the labels on which the silo trains, each with the factor of its update.
LABELS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "labels rotated": (lambda y: (y + 1) % 10, 1.0),
    "labels rotated x8": (lambda y: (y + 1) % 10, 8.0),
    "labels 3 and 8 swapped": (lambda y: torch.where(y == 3, 8, torch.where(y == 8, 3, y)), 1.0),
    "labels random": (lambda y: (7 * y + 3 * torch.arange(len(y))) % 10, 1.0),
    "labels all 0": (torch.zeros_like, 1.0),
    "labels all 0, x8": (torch.zeros_like, 8.0),
}
LIES: dict[str, Lie] = {
    "rotated x1": permuted_head(1.0, rotate),
    "rotated x5": permuted_head(5.0, rotate),
    "rotated x8": permuted_head(8.0, rotate),
    "rotated x9": permuted_head(9.0, rotate),
    "3 and 8 swapped x1": permuted_head(1.0, swap),
    "3 and 8 swapped x8": permuted_head(8.0, swap),
    "scaled x8": scaled(8.0),
    "scaled x100": scaled(100.0),
    "sign flipped": scaled(-1.0),
    "sign flipped x8": scaled(-8.0),
    "sign flipped x0.3": scaled(-0.3),
    "unchanged": scaled(0.0),
    "sign flipped x8, last round": late(scaled(-8.0), 1),
    "rotated x8, last two rounds": late(permuted_head(8.0, rotate), 2),
    "zeros": zeros,
    "copy": copied,
    "1e30": huge,
    "noise x1": noise(1.0),
    "noise x8": noise(8.0),
    "one class x1": one_class(1.0),
    "one class x8": one_class(8.0),
    "counts: refined all wrong": counts(1.0, 1.0, 0.0, 0.0),
    "counts: refined all right": counts(1.0, 0.0, 1.0, 1.0),
    "counts: 0.7 right": counts(1.0, 0.7, 0.7, 0.7),
    "counts of 1000 times the samples": counts(1000.0, 0.95, 0.95, 0.95),
    "rotated x8, counts: 0.95 right": both(permuted_head(8.0, rotate), counts(1.0, 0.95, 0.95, 0.95)),
    "loss of 1e5": false_loss(1e5),
    "loss of -100": false_loss(-100.0),
    "first gradient -1e9": false_measurement(-1e9),
    "first gradient 1e9": false_measurement(1e9),
    "variates x-30": variates(-30.0),
    "variates x1000": variates(1000.0),
    "variates x-1": variates(-1.0),
    "variates x-8": variates(-8.0),
}
#: Less common, or much like another one.
RARE = {
    "labels random",
    "sign flipped x0.3",
    "unchanged",
    "loss of 1e5",
    "loss of -100",
    "first gradient -1e9",
    "first gradient 1e9",
    "sign flipped x8, last round",
    "rotated x8, last two rounds",
    "labels 3 and 8 swapped",
    "labels all 0, x8",
    "scaled x100",
    "noise x1",
    "noise x8",
    "one class x1",
    "one class x8",
    "variates x-1",
}


@contextmanager
def lying(liar: int, name: str) -> Iterator[None]:
    """In this block the silo `liar` lies in every round."""
    train_client, eligible, class_counts, sample = (
        MrTF.train_client,
        MrTF.eligible_clients,
        session.client_class_counts,
        session.sample_client_data,
    )
    last: list[ClientUpdate] = []

    def train(self: MrTF, model: nn.Module, task: ClientTask) -> ClientUpdate:
        order, factor = LABELS.get(name, (None, 1.0)) if task.client == liar else (None, 1.0)
        asked = task if order is None else replace(task, data=PermutedLabels(task.data, order))
        update = train_client(self, model, asked)
        is_training = update.loss is not None
        if task.client == liar and order is not None:
            update = with_matching_variate(task, update, replace(update, weights=move(task, update.weights, factor)))
        lie = LIES.get(name)
        if task.client == liar and lie is not None and (is_training or "counts" in name):
            update = with_matching_variate(task, update, lie(task, update, last[-1] if last else None))
        last[:] = [update]
        return update

    def without(self: MrTF, state: Any, available: Any) -> Any:
        return [client for client in available if client != liar]

    patches: list[tuple[Any, str, Any, Any]] = [
        (MrTF, "train_client", train, train_client),
        (session, "client_class_counts", lambda *_: None, class_counts),
        (session, "sample_client_data", lambda *_: None, sample),
    ]
    if name == WITHOUT:
        patches.append((MrTF, "eligible_clients", without, eligible))
    try:
        for owner, attribute, new, _ in patches:
            setattr(owner, attribute, new)
        yield
    finally:
        for owner, attribute, _, old in patches:
            setattr(owner, attribute, old)


def measure(silos: int, partition: str, seed: int, name: str) -> dict[str, Any]:
    """One run: accuracy, the estimate, and which silos it names."""
    with tempfile.TemporaryDirectory() as folder, lying(silos - 1, name):
        config = {
            "common_args": {
                "training_type": "simulation",
                "random_seed": seed,
                "run_dir": f"{folder}/run",
                "keep_features": False,
            },
            "data_args": {"dataset": "digits", "partition_method": partition, "partition_alpha": 0.5},
            "device_args": {"threads": 1},
            "model_args": {"model": "mlp", "hidden_size": 64},
            "train_args": {
                "federated_optimizer": "MrTF",
                "client_num_in_total": silos,
                "client_num_per_round": silos,
                "comm_round": ROUNDS,
                "epochs": 3,
                "batch_size": 32,
                "client_optimizer": "sgd",
                "learning_rate": 0.05,
            },
            "mrtf_args": {"preset": "tuned", "refine_steps": 30},
        }
        try:
            mrtf_fedml.run(config, progress=False)
        except mrtf_fedml.UserError as error:
            return {"acc": 0.0, "estimate": None, "interval": None, "listed": [], "warnings": [str(error)]}
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    flagged = [{**line["excluded_clients"], **line.get("outlier_clients", {})} for line in lines]
    return {
        "acc": lines[-1]["acc"],
        "estimate": summary["estimated_accuracy"],
        "interval": summary["estimated_accuracy_interval"],
        "listed": sorted({int(client) for clients in flagged for client in clients}),
        "warnings": summary["warnings"],
    }


#: Honest federations whose clients differ: clients in total and per round, and the partition.
HONEST_SETUPS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "Dirichlet 0.1": (20, 5, {"partition_method": "dirichlet", "partition_alpha": 0.1}),
    "Dirichlet 0.5": (10, 5, {"partition_method": "dirichlet", "partition_alpha": 0.5}),
    "3 classes per client": (20, 5, {"partition_method": "label", "classes_per_client": 3}),
}


def measure_honest(file: str, name: str, seed: int, is_defended: bool) -> dict[str, Any]:
    """One run without a lie: the accuracy after each round, how often an update was changed, and warned clients."""
    clients, per_round, partition = HONEST_SETUPS[name]
    bounds = outliers.MAX_RATIO, outliers.EXCLUSION_RATIO
    if not is_defended:
        outliers.MAX_RATIO = outliers.EXCLUSION_RATIO = math.inf
    data = {"dataset": "npz", "data_file": file, "client_samples": 2000, "server_samples": 350, **partition}
    train = {
        "federated_optimizer": "MrTF",
        "client_num_in_total": clients,
        "client_num_per_round": per_round,
        "comm_round": 20,
        "epochs": 3,
        "batch_size": 10,
        "client_optimizer": "sgd",
        "learning_rate": 0.03,
        "momentum": 0.9,
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = {
                "common_args": {"random_seed": seed, "run_dir": f"{folder}/run", "keep_features": False},
                "data_args": data,
                "device_args": {"threads": 1},
                "model_args": {"model": "mlp", "hidden_size": 64},
                "train_args": train,
                "mrtf_args": {"preset": "tuned", "refine_steps": 100},
            }
            mrtf_fedml.run(config, progress=False)
            lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
            summary = json.loads(Path(folder, "run", "summary.json").read_text())
    finally:
        outliers.MAX_RATIO, outliers.EXCLUSION_RATIO = bounds
    return {
        "acc": [line["acc"] for line in lines],
        "changed": sum(len(line.get("outlier_clients", {})) + len(line["excluded_clients"]) for line in lines),
        "named": sum(names_silo(summary, client) for client in range(clients)),
    }


def names_silo(result: dict[str, Any], silo: int) -> bool:
    """Whether a warning of the run names the silo."""
    return any(f"client {silo} " in warning for warning in result["warnings"])


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", default="", help="lies whose name contains this")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--setups", default="", help="such as 5-iid,10-dirichlet")
    parser.add_argument("--honest", help="USPS as .npz: measure honest federations with and without the defence")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    results = {tuple(row["case"]): row for row in map(json.loads, lines)}
    seeds = [int(seed) for seed in options.seeds.split(",")]
    cases: list[tuple[Any, ...]]
    run: Callable[..., dict[str, Any]]
    if options.honest is not None:
        honest = (
            (name, seed, is_defended) for seed in seeds for name in HONEST_SETUPS for is_defended in (True, False)
        )
        cases, run, show = list(honest), partial(measure_honest, options.honest), print_cost
    else:
        # Rare lies last, so that a measurement that is cut short has all seeds of the others.
        cases = [
            (silos, partition, seed, name)
            for is_rare in (False, True)
            for seed in seeds
            for silos, partition in SETUPS
            if not options.setups or f"{silos}-{partition}" in options.setups.split(",")
            for name in (HONEST, WITHOUT, *LABELS, *LIES)
            if (name in RARE) == is_rare and options.only in name
        ]
        run, show = measure, print_table
    if options.table:
        show(results)
        return
    for case in cases:
        if case not in results:
            row = {"case": case, **run(*case)}
            print(row, flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def print_cost(results: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """One row per honest federation: the accuracy with the defence, and less that without it."""
    print(
        "| federation | seeds | accuracy | last ten rounds | cost at the end | cost in the last ten | updates changed |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in HONEST_SETUPS:
        seeds = [seed for each, seed, is_defended in results if each == name and is_defended]
        pairs = [
            (results[name, seed, True], results[name, seed, False]) for seed in seeds if (name, seed, False) in results
        ]
        if not pairs:
            continue
        last = [[statistics.mean(run["acc"][-10:]) for run in pair] for pair in pairs]
        columns = [
            [run["acc"][-1] for run, _ in pairs],
            [one for one, _ in last],
            [other["acc"][-1] - run["acc"][-1] for run, other in pairs],
            [other - one for one, other in last],
        ]
        changed = ", ".join(str(run["changed"]) for run, _ in pairs)
        print(f"| {name} | {len(pairs)} | {' | '.join(map(_spread, columns))} | {changed} |")


def print_table(results: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """One row per lie, the most harmful first; then the federations without a lie."""
    titles = [f"{silos} silos, {partition}" for silos, partition in SETUPS]
    rows = []
    for name in dict.fromkeys(case[3] for case in results):
        cells, losses, errors, named, missed = [], [], [], [], 0
        for setup in SETUPS:
            of_setup = []
            for seed in sorted({case[2] for case in results}):
                run, other = (results.get((*setup, seed, each)) for each in (name, WITHOUT))
                if run is None or other is None:
                    continue
                of_setup.append(other["acc"] - run["acc"])
                named.append(names_silo(run, setup[0] - 1))
                error = None if run["estimate"] is None else run["estimate"] - run["acc"]
                errors += [] if error is None else [error]
                is_off = error is not None and abs(error) > MAX_ERROR
                missed += (of_setup[-1] > HARMLESS or is_off) and not named[-1]
            losses += of_setup
            cells.append(_spread(of_setup))
        if name in (HONEST, WITHOUT) or not losses:
            continue
        error = f"{min(errors):+.2f} to {max(errors):+.2f}" if errors else "none stated"
        line = f"| {name} | {' | '.join(cells)} | {error} | {sum(named)} of {len(named)} | {missed} |"
        rows.append((-missed, -max(losses), line))
    print(f"| lie | {' | '.join(titles)} | estimate less accuracy | silo named | harmful, not named |")
    print("|---|" + "---|" * (len(SETUPS) + 3))
    for *_, line in sorted(rows):
        print(line)
    print("\n| federation | silos | partition | accuracy | estimate less accuracy | silos named |")
    print("|---|---|---|---|---|---|")
    for silos, partition in SETUPS:
        for name in (HONEST, WITHOUT):
            found = [row for case, row in results.items() if case[:2] == (silos, partition) and case[3] == name]
            if found:
                wrong = sum(names_silo(run, silo) for run in found for silo in range(silos))
                errors = [run["estimate"] - run["acc"] for run in found if run["estimate"] is not None]
                accuracy = _spread([run["acc"] for run in found])
                print(f"| {name} | {silos} | {partition} | {accuracy} | {_spread(errors)} | {wrong} |")


def _spread(values: list[float]) -> str:
    """Mean and standard deviation; one value has none."""
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


if __name__ == "__main__":
    main()
