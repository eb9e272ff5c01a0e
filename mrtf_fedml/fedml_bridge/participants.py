"""One process's part of a run, on any backend, and the model that it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from fedml.core import ClientTrainer
from torch import nn

from ..algorithms import Algorithm
from ..config import RunSettings
from ..data import SiloDataset, TransductiveDataset
from ..data.preprocessing import reject_encoder
from ..errors import UserError
from ..models.checks import infer_vocabulary_size
from ..process.mpi import RANKS_BACKENDS
from .adapters import AlgorithmAggregator, make_adapters
from .args import check_clients, check_fedml_options
from .backends.cross_device.server import BACKEND as DEVICE_BACKEND
from .backends.cross_device.server import make_device_server
from .backends.cross_silo.client import SiloClient
from .backends.cross_silo.party import BACKENDS as SILO_BACKENDS
from .backends.cross_silo.party import is_silo
from .backends.cross_silo.server import SiloServer
from .backends.mpi.simulation import MPISimulation
from .backends.single_process import SingleProcess
from .model_zoo import build_model, truncate_zoo_model
from .runner import RunOptions


class Participant(Protocol):
    """One process's part of a run; FedMLRunner calls `run`."""

    #: None on a silo.
    run_dir: Path | None

    def run(self) -> None:
        """Run to the end."""


def make_model(settings: RunSettings, dataset: TransductiveDataset | SiloDataset) -> nn.Module:
    """The model that `model_args` names. For devices their server makes it, with its .mnn file."""
    return build_model(
        settings.model,
        dataset.input_shape,
        dataset.class_num,
        settings.common.random_seed,
        example=dataset.example_inputs,
        vocabulary=infer_vocabulary_size(dataset.example_inputs, getattr(dataset[2], "inputs", None)),
    )


def make_participant(
    args: Any,
    algorithm: Algorithm,
    device: torch.device,
    dataset: Any,
    model: nn.Module | None,
    options: RunOptions,
    trainer: ClientTrainer | None = None,
    aggregator: AlgorithmAggregator | None = None,
) -> Participant:
    """The part of this process in the run.

    Args:
        args: FedML's arguments, after `fedml.init`.
        algorithm: of the run.
        device: of this process.
        dataset: ours, or FedML's eight entries.
        model: None only for devices.
        options: how the run is executed.
        trainer: a user's own; the algorithm's where none is given.
        aggregator: a user's own, an adapter of ours; the algorithm's where none is given.
    """
    settings = algorithm.settings
    training_type, backend = settings.common.training_type, settings.common.backend
    check_fedml_options(args, algorithm)
    if getattr(dataset, "encoder_digest", None) is None:
        reject_encoder(settings, "the project's own dataset")
    if training_type == "cross_device":
        return make_device_server(args, device, dataset, model, algorithm, aggregator, options)
    assert model is not None
    truncate_zoo_model(model, dataset)
    trainer_class, aggregator_class = make_adapters(type(algorithm))
    if training_type == "cross_silo":
        # A silo has neither the server's inputs nor its aggregator.
        if is_silo(args):
            return SiloClient(args, device, dataset, trainer or trainer_class(model, args, algorithm), options)
        return SiloServer(args, device, dataset, aggregator or aggregator_class(model, args, algorithm), options)
    simulations: dict[str, Any] = {"sp": SingleProcess, **dict.fromkeys(RANKS_BACKENDS, MPISimulation)}
    if training_type != "simulation" or backend not in simulations:
        known = [f"simulation with {name}" for name in simulations]
        known += [f"cross_silo with {name}" for name in SILO_BACKENDS]
        known.append(f"cross_device with {DEVICE_BACKEND}")
        raise UserError(
            f"training_type {training_type!r} with backend {backend!r} is not supported; known: " + ", ".join(known)
        )
    check_clients(dataset, settings.train.client_num_in_total)
    simulation: Participant = simulations[backend](
        args,
        device,
        dataset,
        trainer or trainer_class(model, args, algorithm),
        aggregator or aggregator_class(model, args, algorithm),
        options,
    )
    return simulation
