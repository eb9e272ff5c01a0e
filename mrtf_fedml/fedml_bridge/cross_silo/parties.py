"""FedML's cross-silo training with our server and our silos: one process each, started by itself with its rank."""

from __future__ import annotations

from typing import Any

import torch
from fedml.core import ClientTrainer

from ...errors import UserError
from ..server_side import AlgorithmAggregator
from .client import Silo
from .server import SiloServer


def is_silo(args: Any) -> bool:
    """Whether this process is a silo of a federation: it has samples with labels, and no server's set."""
    return args.training_type == "cross_silo" and args.role == "client"


def server_of(args: Any, device: torch.device, dataset: Any, aggregator: AlgorithmAggregator) -> SiloServer:
    """Rank 0."""
    _check_place(args)
    return SiloServer(args, device, dataset, aggregator)


def silo_of(args: Any, device: torch.device, dataset: Any, trainer: ClientTrainer) -> Silo:
    """Rank r, which owns shard r-1."""
    _check_place(args)
    return Silo(args, device, dataset, trainer)


def _check_place(args: Any) -> None:
    rank, role, scenario = int(args.rank), args.role, getattr(args, "scenario", "horizontal")
    if scenario != "horizontal":
        raise UserError(f"common_args.scenario is {scenario!r}; our algorithms run across silos as 'horizontal' only")
    if role not in ("server", "client"):
        raise UserError(f"role is {role!r}; it is server or client (--role)")
    if (rank == 0) != (role == "server"):
        raise UserError(f"role {role!r} does not fit rank {rank}; the server has rank 0, the silos 1, 2, ... (--rank)")
