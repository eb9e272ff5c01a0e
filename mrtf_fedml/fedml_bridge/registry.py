"""`federated_optimizer: MrTF` becomes a word that FedML understands.

FedML has no registry; every entry point passes through FedMLRunner, so that is where we stand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fedml.runner import FedMLRunner

from ..algorithms import OUR_PREFIX, algorithm_named
from ..errors import UserError
from ..process.start import check_start, started_ranks
from .arguments import settings_of
from .client_side import AlgorithmTrainer
from .compatibility import check_clients, check_version, refuse_what_cannot_combine
from .cross_silo.manager import BACKENDS as SILO_BACKENDS
from .cross_silo.parties import is_silo, server_of, silo_of
from .mpi.simulation import MPISimulation
from .offline import go_online, stay_offline
from .plugin import PAIRS
from .server_side import AlgorithmAggregator
from .single_process import SingleProcess
from .zoo import keep_classes

#: Words that mean ours without a prefix; those that FedML has stay FedML's own.
OUR_WORDS = ("MrTF", "FedDF", "FedMMD")

#: What runs a round's clients, by (training_type, backend).
_BACKENDS: dict[tuple[str, str], Callable[..., Any]] = {
    ("simulation", "sp"): SingleProcess,
    ("simulation", "MPI"): MPISimulation,
}

_original: Callable[..., None] | None = None


def register() -> None:
    """Let FedMLRunner run our algorithms; every one of FedML's stays as it was. Twice does no harm.

    `fedml.init()` is also kept off the network in runs whose tracking is off.
    """
    global _original
    if _original is not None:
        return
    check_version()
    stay_offline()
    _original = fedml_init = FedMLRunner.__init__

    @functools.wraps(fedml_init)
    def hooked_init(
        self: Any,
        args: Any,
        device: Any,
        dataset: Any,
        model: Any,
        client_trainer: Any = None,
        server_aggregator: Any = None,
        algorithm_flow: Any = None,
    ) -> None:
        if algorithm_flow is not None or not _is_ours(args, client_trainer, server_aggregator):
            fedml_init(self, args, device, dataset, model, client_trainer, server_aggregator, algorithm_flow)
            return
        self.runner = _our_runner(args, device, dataset, model, client_trainer, server_aggregator)

    FedMLRunner.__init__ = hooked_init


def unregister() -> None:
    """Give FedML back as it was."""
    global _original
    go_online()
    if _original is not None:
        FedMLRunner.__init__ = _original
        _original = None


def _is_ours(args: Any, client_trainer: Any, server_aggregator: Any) -> bool:
    if isinstance(client_trainer, AlgorithmTrainer) or isinstance(server_aggregator, AlgorithmAggregator):
        return True
    word = str(getattr(args, "federated_optimizer", ""))
    return word in OUR_WORDS or word.lower().startswith(OUR_PREFIX)


def _our_runner(args: Any, device: Any, dataset: Any, model: Any, client_trainer: Any, server_aggregator: Any) -> Any:
    keep_classes(model, dataset)
    if server_aggregator is not None and not isinstance(server_aggregator, AlgorithmAggregator):
        raise UserError(
            f"federated_optimizer {args.federated_optimizer!r} brings its own server aggregator and cannot use "
            f"{type(server_aggregator).__name__}; leave it out, or name an algorithm of FedML's"
        )
    given = next((half for half in (server_aggregator, client_trainer) if hasattr(half, "algorithm")), None)
    algorithm = given.algorithm_class if given is not None else algorithm_named(args.federated_optimizer)
    trainer_class, aggregator_class = PAIRS[algorithm.name]
    refuse_what_cannot_combine(args, algorithm)
    settings = settings_of(args)
    check_start(args.training_type, args.backend, settings.mrtf.refine_on, started_ranks())
    client_trainer = client_trainer or trainer_class(model, args)
    if is_silo(args):
        # A silo has neither the server's inputs nor its aggregator.
        return silo_of(args, device, dataset, client_trainer)
    server_aggregator = server_aggregator or aggregator_class(model, args)
    if args.training_type == "cross_silo":
        return server_of(args, device, dataset, server_aggregator)
    check_clients(dataset, settings.train.client_num_in_total)
    backend = _BACKENDS.get((args.training_type, args.backend))
    if backend is None:
        pairs = [*_BACKENDS, *(("cross_silo", name) for name in SILO_BACKENDS)]
        known = ", ".join(f"{training_type} with {name}" for training_type, name in pairs)
        raise UserError(
            f"training_type {args.training_type!r} with backend {args.backend!r} is not supported; known: {known}"
        )
    return backend(args, device, dataset, model, client_trainer, server_aggregator)
