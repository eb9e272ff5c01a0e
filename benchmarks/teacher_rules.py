"""Compare rules for targets on the logits of one recorded run, without distilling: minutes in place of hours.

With `broadcast: aggregated` the clients' models do not depend on the refinery. So one run of the base is recorded, and
rules are applied to the logits of its clients' models on the server's samples:

    RECORD=recorded PYTHONPATH=benchmarks mrtf run --cf SETUP.yaml --set dataset=npz --set data_file=DATA.npz \
        --set federated_optimizer=teacher_rules:Recording
    python benchmarks/teacher_rules.py recorded DATA.npz

The server's set must be all of DATA.npz's x_test, in its order. Labels are read here to score the rules; a run
reads none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import mrtf_fedml
from mrtf_fedml.algorithms.mrtf import ComponentMemory, distillation_targets

Round = dict[str, npt.NDArray[Any]]

#: What is tried, by settings of the refinery.
RULES: dict[str, dict[str, Any]] = {
    "uniform": {"teacher_weighting": "uniform"},
    "entropy": {},
    "entropy, balance 0.5": {"class_balance": 0.5},
    "familiarity": {"teacher_weighting": "familiarity"},
    "familiarity, balance 0.5": {"teacher_weighting": "familiarity", "class_balance": 0.5},
    "familiarity, estimated shares": {
        "teacher_weighting": "familiarity",
        "class_balance": 0.5,
        "class_prior": "estimated",
    },
}


class Recording(mrtf_fedml.Algorithm):
    """FedAvg, which writes down what the models of each round say of the server's samples."""

    name = "Recording"
    transductive = True

    def server_update(self, state: Any, updates: Any, aggregated: Any, server: Any) -> Any:
        """The base's; what was said goes into the folder that RECORD names."""
        folder = Path(os.environ["RECORD"])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder / f"{state.round:04d}.npz",
            local=torch.stack([server.logits(update.weights) for update in updates]).numpy(),
            before=server.logits(state.weights).numpy(),
            aggregated=server.logits(aggregated).numpy(),
            loss=np.mean([update.loss for update in updates]),
        )
        return super().server_update(state, updates, aggregated, server)


def curve(rounds: list[Round], settings: dict[str, Any], labels: Tensor, rows: Tensor) -> list[float]:
    """The accuracy of the targets after each round, on these of the server's samples."""
    memory, marks = ComponentMemory({}), []
    for one in rounds:
        local = torch.from_numpy(one["local"])[:, rows]
        models = torch.stack([torch.from_numpy(one["before"]), torch.from_numpy(one["aggregated"])])[:, rows]
        targets = distillation_targets(settings, local, models, None, float(one["loss"]), memory).targets
        marks.append(float((targets.argmax(dim=1) == labels[rows]).double().mean()))
    return marks


def table(
    rounds: list[Round],
    labels: Tensor,
    servers: list[list[int]],
    say: Callable[[str], None],
    rules: dict[str, dict[str, Any]] = RULES,
) -> None:
    """One line per rule, a mean over servers that have these classes each.

    Mean over the rounds, last ten, last; and how much better than the plain average the targets are in the first five
    rounds, and in the worst five.
    """
    all_rows = [torch.isin(labels, torch.tensor(classes)).nonzero().squeeze(1) for classes in servers]
    plain = [_plain(rounds, labels, rows) for rows in all_rows]
    say(f"server has {len(servers[0])} classes | mean | last ten | last | first window | worst window")
    say(f"plain average | {_three(plain)} | |")
    for name, keys in rules.items():
        settings = {"cluster_refinery": False, "target_smoothing": 0.75, **keys}
        marks = [curve(rounds, settings, labels, rows) for rows in all_rows]
        gains = [
            np.convolve(np.array(one) - np.array(other), np.ones(5) / 5, "valid")
            for one, other in zip(marks, plain, strict=True)
        ]
        first, worst = np.mean([one[0] for one in gains]), np.mean([one.min() for one in gains])
        say(f"{name} | {_three(marks)} | {first:+.3f} | {worst:+.3f}")


def _plain(rounds: list[Round], labels: Tensor, rows: Tensor) -> list[float]:
    """The accuracy of the plain average after each round."""
    named = [torch.from_numpy(one["aggregated"])[rows].argmax(dim=1) for one in rounds]
    return [float((one == labels[rows]).double().mean()) for one in named]


def _three(curves: list[list[float]]) -> str:
    marks = np.mean(curves, axis=0)
    return f"{marks.mean():.3f} | {marks[-10:].mean():.3f} | {marks[-1]:.3f}"


def main(folder: str, data: str) -> None:
    """All classes on the server; threes of them, beginning with the most frequent; each of them alone."""
    rounds = [dict(np.load(path)) for path in sorted(Path(folder).glob("*.npz"))]
    labels = torch.from_numpy(np.load(data)["y_test"].astype(np.int64))
    by_size = torch.bincount(labels).argsort(descending=True).tolist()
    threes = [by_size[start : start + 3] for start in range(0, len(by_size) - 2, 3)]
    for servers in ([by_size], threes, [[one] for one in by_size]):
        table(rounds, labels, servers, print)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
