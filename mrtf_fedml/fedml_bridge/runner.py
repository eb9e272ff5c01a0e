"""What runs a configuration in FedML with an algorithm of ours: checked, put together, and handed to a backend."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from fedml.core import ClientTrainer

from ..algorithms import Algorithm, algorithm_named
from ..errors import UserError
from ..process.compiler import check_compiler
from ..process.start import check_start, started_ranks
from .arguments import settings_of
from .client_side import AlgorithmTrainer
from .compatibility import check_clients, refuse_what_cannot_combine
from .cross_device.parties import BACKEND as DEVICE_BACKEND
from .cross_device.parties import server_of as server_of_devices
from .cross_silo.manager import BACKENDS as SILO_BACKENDS
from .cross_silo.parties import is_silo, server_of, silo_of
from .devices import refuse_missing_gpu
from .mpi.simulation import MPISimulation
from .pair import pair_of
from .server_side import AlgorithmAggregator
from .single_process import SingleProcess
from .zoo import keep_classes


class Runner(Protocol):
    """What FedMLRunner calls."""

    def run(self) -> None:
        """To the end."""


def our_runner(
    args: Any,
    device: torch.device,
    dataset: Any,
    model: Any,
    client_trainer: ClientTrainer | None = None,
    server_aggregator: Any = None,
) -> Runner:
    """The backend that the arguments ask for, with the pair that was given, or the one of the algorithm they name.

    The model is a module; for devices it may be None, as FedML's model hub gives it.
    """
    if args.training_type != "cross_device":
        keep_classes(model, dataset)
    algorithm_class = _algorithm_class(args, client_trainer, server_aggregator)
    if args.training_type == "cross_device" or _is_foreign(client_trainer):
        _let_clients_only_train(args, algorithm_class)
    trainer_class, aggregator_class = pair_of(algorithm_class)
    refuse_what_cannot_combine(args, algorithm_class)
    settings = settings_of(args)
    algorithm = algorithm_class(settings)
    _refuse_foreign_trainer(algorithm, client_trainer)
    check_compiler(settings.device.compile)
    refuse_missing_gpu(args, torch.cuda.device_count(), torch.device(device))
    check_start(args.training_type, args.backend, getattr(algorithm.own, "refine_on", "server"), started_ranks())
    place = (args.training_type, args.backend)
    if args.training_type == "cross_silo":
        # A silo has neither the server's inputs nor its aggregator.
        if is_silo(args):
            return silo_of(args, device, dataset, client_trainer or trainer_class(model, args))
        return server_of(args, device, dataset, server_aggregator or aggregator_class(model, args))
    if args.training_type == "cross_device":
        return server_of_devices(args, device, dataset, model, algorithm_class, server_aggregator)
    if place not in _SIMULATIONS:
        known = [f"simulation with {backend}" for _, backend in _SIMULATIONS]
        known += [f"cross_silo with {backend}" for backend in SILO_BACKENDS]
        known.append(f"cross_device with {DEVICE_BACKEND}")
        raise UserError(
            f"training_type {args.training_type!r} with backend {args.backend!r} is not supported; known: "
            + ", ".join(known)
        )
    check_clients(dataset, settings.train.client_num_in_total)
    trainer = client_trainer or trainer_class(model, args)
    aggregator = server_aggregator or aggregator_class(model, args)
    return _SIMULATIONS[place](args, device, dataset, trainer, aggregator)


_SIMULATIONS: dict[tuple[str, str], Any] = {("simulation", "sp"): SingleProcess, ("simulation", "MPI"): MPISimulation}

#: FedML's hooks, which our servers do not call one by one: a round is one function.
_HOOKS = ("on_before_aggregation", "aggregate", "on_after_aggregation")


def _algorithm_class(args: Any, trainer: Any, aggregator: Any) -> type[Algorithm]:
    """What the pair is of; where none was given, what `federated_optimizer` names."""
    if aggregator is not None and not isinstance(aggregator, AlgorithmAggregator):
        raise UserError(
            f"federated_optimizer {args.federated_optimizer!r} brings its own server aggregator and cannot use "
            f"{type(aggregator).__name__}; leave it out, or name an algorithm of FedML's"
        )
    if aggregator is not None:
        changed = [hook for hook in _HOOKS if getattr(type(aggregator), hook) is not getattr(AlgorithmAggregator, hook)]
        if changed:
            raise UserError(
                f"{type(aggregator).__name__} overrides {changed[0]}, which a run does not call; put the rule into a "
                "class derived from mrtf_fedml.Algorithm (docs/extending.md)"
            )
    given = [half.algorithm_class for half in (aggregator, trainer) if isinstance(half, _OURS)]
    if len(given) == 2 and given[0] is not given[1]:
        raise UserError(
            f"the trainer is {given[1].name}'s and the aggregator {given[0].name}'s; give a pair of one algorithm"
        )
    return given[0] if given else algorithm_named(args.federated_optimizer)


_OURS = (AlgorithmTrainer, AlgorithmAggregator)


def _is_foreign(trainer: Any) -> bool:
    """Whether the trainer is the user's own."""
    return trainer is not None and not isinstance(trainer, AlgorithmTrainer)


def _let_clients_only_train(args: Any, algorithm_class: type[Algorithm]) -> None:
    """What the algorithm wants of clients that can do no more."""
    given = settings_of(args).given.get(algorithm_class.section_name(), {})
    for key, value in algorithm_class.where_clients_only_train(given).items():
        setattr(args, key, value)


def _refuse_foreign_trainer(algorithm: Algorithm, trainer: Any) -> None:
    """A trainer of the user's own does FedAvg's local training: it cannot stand in for another client rule."""
    if not _is_foreign(trainer) or not algorithm.has_own_client_rule():
        return
    raise UserError(
        f"{algorithm.name}'s clients do more than train, so {type(trainer).__name__} cannot stand in for them; leave "
        "the trainer out, or take an algorithm whose clients only train (FedAvg, FedOpt, FedDF, MrTF)"
    )
