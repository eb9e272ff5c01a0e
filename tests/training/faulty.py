"""Clients that go wrong, as a test asks for: their weights are not finite, or far too large."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import ClassVar

import torch
from torch import nn

import mrtf_fedml
from mrtf_fedml.algorithms import ClientTask, ClientUpdate


def named(variable: str) -> list[int]:
    """The clients that the environment names."""
    return [int(client) for client in os.environ.get(variable, "").split(",") if client]


class Faulty(mrtf_fedml.Algorithm):
    """FedAvg, but for the clients of BROKEN_CLIENTS, LONG_CLIENTS, HUGE_CLIENTS and LARGEST_CLIENTS."""

    name: ClassVar[str] = "Faulty"

    def train_client(self, model: nn.Module, task: ClientTask) -> ClientUpdate:
        update = super().train_client(model, task)
        if task.client in named("BROKEN_CLIENTS"):
            return replace(update, weights={key: value * float("nan") for key, value in update.weights.items()})
        if task.client in named("LONG_CLIENTS"):
            steps = {key: value - task.weights[key] for key, value in update.weights.items()}
            return replace(update, weights={key: task.weights[key] + 6 * step for key, step in steps.items()})
        if task.client in named("HUGE_CLIENTS"):
            return replace(update, weights={key: value * 1e6 for key, value in update.weights.items()})
        if task.client in named("LARGEST_CLIENTS"):
            return replace(update, weights={key: torch.full_like(value, 3e38) for key, value in update.weights.items()})
        return update
