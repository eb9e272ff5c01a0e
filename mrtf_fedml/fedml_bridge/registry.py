"""`federated_optimizer: MrTF` becomes a word that FedML understands.

FedML has no registry; every entry point passes through FedMLRunner, so that is where we stand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fedml import constants
from fedml.runner import FedMLRunner

from ..algorithms import algorithm_names
from .client_side import AlgorithmTrainer
from .compatibility import check_version
from .nccl import supply_nccl, withdraw_nccl
from .offline import go_online, stay_offline
from .runner import our_runner
from .server_side import AlgorithmAggregator

#: FedML's own words, which stay FedML's; our algorithms of the same name answer to the prefix.
FEDMLS_WORDS = frozenset(
    str(word).lower() for name, word in vars(constants).items() if name.startswith("FedML_FEDERATED_OPTIMIZER")
)

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
    supply_nccl(lambda args: _is_ours(args, None, None))
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
        self.runner = our_runner(args, device, dataset, model, client_trainer, server_aggregator)

    FedMLRunner.__init__ = hooked_init


def unregister() -> None:
    """Give FedML back as it was."""
    global _original
    go_online()
    withdraw_nccl()
    if _original is not None:
        FedMLRunner.__init__ = _original
        _original = None


def _is_ours(args: Any, client_trainer: Any, server_aggregator: Any) -> bool:
    if isinstance(client_trainer, AlgorithmTrainer) or isinstance(server_aggregator, AlgorithmAggregator):
        return True
    word = str(getattr(args, "federated_optimizer", "")).lower()
    if ":" in word:
        # `mrtf:FedAvg`, or an algorithm of the user's own as package.module:Class.
        return True
    return word not in FEDMLS_WORDS and word in [name.lower() for name in algorithm_names()]
