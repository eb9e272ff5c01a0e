"""`register()`: FedML's FedMLRunner runs our algorithms by their names in `federated_optimizer`.

FedML has no registry. Every entry point passes through FedMLRunner, so that its `__init__` is replaced.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from fedml import constants
from fedml.core import ClientTrainer, ServerAggregator
from fedml.runner import FedMLRunner

from ..algorithms import Algorithm, algorithm_by_name, algorithm_names
from ..callbacks.base import Callback
from ..errors import UserError
from ..models.state_dict import clone, load_weights, snapshot
from ..process.logs import log_to_terminal
from ..process.mpi import check_start, world_size
from ..training.loop import Run
from .adapters import AlgorithmAggregator, AlgorithmTrainer
from .args import check_version, settings_of
from .devices import check_gpu_available
from .fedml_init import block_platform_calls, remove_nccl_module, restore_platform_calls, supply_nccl_module
from .participants import Participant, make_participant
from .runner import RunOptions, make_algorithm

#: FedML's own names, which keep their meaning; our algorithms of the same name need the prefix `mrtf:`.
FEDML_OPTIMIZERS = frozenset(
    str(name).lower() for key, name in vars(constants).items() if key.startswith("FedML_FEDERATED_OPTIMIZER")
)

#: FedML's hooks, which our servers do not call one by one.
_HOOKS = ("on_before_aggregation", "aggregate", "on_after_aggregation")

_original_init: Callable[..., None] | None = None


def register() -> None:
    """Let FedMLRunner run our algorithms; FedML's own are unchanged. Calling it twice is harmless.

    `fedml.init()` also makes no network call in runs whose tracking is off.
    """
    global _original_init
    if _original_init is not None:
        return
    check_version()
    if not logging.getLogger().handlers:
        # Without a handler Python prints warnings without their level.
        log_to_terminal(verbose=False)
    block_platform_calls()
    supply_nccl_module(lambda args: _is_ours(args, None, None))
    _original_init = fedml_init = FedMLRunner.__init__

    @functools.wraps(fedml_init)
    def init(
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
        self.runner = make_project_participant(args, device, dataset, model, client_trainer, server_aggregator)

    FedMLRunner.__init__ = init


def unregister() -> None:
    """Undo `register`."""
    global _original_init
    restore_platform_calls()
    remove_nccl_module()
    if _original_init is not None:
        FedMLRunner.__init__ = _original_init
        _original_init = None


def make_project_participant(
    args: Any,
    device: torch.device,
    dataset: Any,
    model: Any,
    trainer: ClientTrainer | None = None,
    aggregator: Any = None,
) -> Participant:
    """The part of this process in a FedML project's run, with the trainer and aggregator given to FedMLRunner, if any.

    The model may be None for devices, as FedML's model hub gives it.
    """
    algorithm_class = _algorithm_class(args, trainer, aggregator)
    settings = settings_of(args)
    check_start(settings.common.training_type, settings.common.backend, world_size())
    check_gpu_available(args, torch.cuda.device_count(), torch.device(device))
    is_own_trainer = trainer is not None and not isinstance(trainer, AlgorithmTrainer)
    # An adapter that the project has made brings its algorithm object.
    adapters = [adapter for adapter in (aggregator, trainer) if isinstance(adapter, _ADAPTERS)]
    if adapters and not is_own_trainer and settings.common.training_type != "cross_device":
        algorithm = adapters[0].server.algorithm if adapters[0] is aggregator else adapters[0].algorithm
    else:
        algorithm = make_algorithm(algorithm_class, settings, clients_only_train=is_own_trainer)
    if is_own_trainer and algorithm.has_own_client_rule():
        raise UserError(
            f"{algorithm.name}'s clients do more than train, so that {type(trainer).__name__} cannot replace them; "
            "leave the trainer out, or use an algorithm whose clients only train (FedAvg, FedOpt, FedDF, MrTF)"
        )
    tests: list[Callback] = []
    if aggregator is not None and not isinstance(aggregator, AlgorithmAggregator):
        tests, aggregator = [_ProjectTest(aggregator, dataset, device, args)], None
    options = RunOptions(print_summary=True, callbacks=tests)
    return make_participant(args, algorithm, device, dataset, model, options, trainer, aggregator)


class _ProjectTest(Callback):
    """Calls `test_all` and `test` of a project's own server aggregator after each round, as FedML's server does."""

    def __init__(self, aggregator: ServerAggregator, dataset: Any, device: Any, args: Any) -> None:
        self._aggregator = aggregator
        self._dataset = dataset
        self._device = device
        self._args = args

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Give it the weights that predict, and the project's own test data."""
        model = self._aggregator.model
        # The project's model may be the one that the server computes with.
        before, was_training = snapshot(model), model.training
        self._aggregator.set_model_params(clone(run.state.prediction_weights))
        _, _, _, test_global, _, train_local, test_local, _ = self._dataset
        self._aggregator.test_all(train_local, test_local, self._device, self._args)
        self._aggregator.test(test_global, self._device, self._args)
        load_weights(model, before)
        model.train(was_training)


_ADAPTERS = (AlgorithmTrainer, AlgorithmAggregator)


def _algorithm_class(args: Any, trainer: Any, aggregator: Any) -> type[Algorithm]:
    """The algorithm of the adapters; where there are none, the one that `federated_optimizer` names."""
    if aggregator is not None and not isinstance(aggregator, AlgorithmAggregator):
        kind = type(aggregator)
        rules = [hook for hook in _HOOKS if getattr(kind, hook, None) is not getattr(ServerAggregator, hook)]
        if rules or not isinstance(aggregator, ServerAggregator):
            what = f"overrides {rules[0]}" if rules else "is no ServerAggregator"
            raise UserError(
                f"{kind.__name__} {what}, but federated_optimizer {args.federated_optimizer!r} aggregates by itself "
                "and calls only test and test_all of a project's aggregator; put the rest into a callback "
                "(common_args.callbacks) or an algorithm of your own (docs/guides/extending.md)"
            )
    elif aggregator is not None:
        changed = [hook for hook in _HOOKS if getattr(type(aggregator), hook) is not getattr(AlgorithmAggregator, hook)]
        if changed:
            raise UserError(
                f"{type(aggregator).__name__} overrides {changed[0]}, which a run does not call; put the rule into a "
                "class derived from mrtf_fedml.Algorithm (docs/guides/extending.md)"
            )
    classes = [adapter.algorithm_class for adapter in (aggregator, trainer) if isinstance(adapter, _ADAPTERS)]
    if len(classes) == 2 and classes[0] is not classes[1]:
        raise UserError(
            f"the trainer is {classes[1].name}'s and the aggregator {classes[0].name}'s; use those of one algorithm"
        )
    return classes[0] if classes else algorithm_by_name(args.federated_optimizer)


def _is_ours(args: Any, client_trainer: Any, server_aggregator: Any) -> bool:
    if isinstance(client_trainer, AlgorithmTrainer) or isinstance(server_aggregator, AlgorithmAggregator):
        return True
    name = str(getattr(args, "federated_optimizer", "")).lower()
    if ":" in name:
        # `mrtf:FedAvg`, or a user's own algorithm as package.module:Class.
        return True
    return name not in FEDML_OPTIMIZERS and name in [known.lower() for known in algorithm_names()]
