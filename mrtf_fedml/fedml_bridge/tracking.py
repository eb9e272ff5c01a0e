"""A round's metrics, for those who asked FedML to track the run: its platform, or Weights & Biases."""

from __future__ import annotations

from typing import Any

from fedml import mlops

from ..runs.recorder import Watcher
from .offline import wants_platform


def trackers(args: Any) -> list[Watcher]:
    """What watches the rounds beside the run's folder; none where tracking is off."""
    watchers: list[Watcher] = []
    if getattr(args, "enable_wandb", False):
        import wandb  # only here: it starts threads of its own

        watchers.append(lambda line: wandb.log(_numbers(line)))
    if wants_platform(args):
        watchers.append(lambda line: mlops.log(_numbers(line)))
        watchers.append(lambda line: mlops.log_round_info(args.comm_round, line["round"]))
    return watchers


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in line.items() if isinstance(value, int | float)}
