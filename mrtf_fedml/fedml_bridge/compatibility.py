"""What goes together: the version of FedML, its privacy and security options, and a project's own dataset."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

import fedml
from fedml.core.dp.common.constants import DP_CDP, DP_CLIP, NBAFL_DP
from fedml.runner import FedMLRunner

from ..algorithms import Algorithm
from ..errors import UserError

_log = logging.getLogger(__name__)

TESTED_VERSION = "0.9.6"

#: What the hook in FedMLRunner is called with.
RUNNER_PARAMETERS = (
    "self",
    "args",
    "device",
    "dataset",
    "model",
    "client_trainer",
    "server_aggregator",
    "algorithm_flow",
)


def check_version() -> None:
    """Warn of a FedML that we have not tried; refuse one whose runner is not the one we stand in."""
    found = getattr(fedml, "__version__", "of no known version")
    if tuple(inspect.signature(FedMLRunner.__init__).parameters) != RUNNER_PARAMETERS:
        raise UserError(
            f"FedML {found} has another FedMLRunner than {TESTED_VERSION}; install that: pip install "
            f"fedml=={TESTED_VERSION}"
        )
    if found != TESTED_VERSION:
        _log.warning("FedML %s is installed; mrtf_fedml is tested with %s alone", found, TESTED_VERSION)


def refuse_what_cannot_combine(args: Any, algorithm: type[Algorithm]) -> None:
    """Stop before the first round where an option of FedML's contradicts the algorithm."""
    if _is_on(args, "enable_fhe"):
        raise UserError(
            "enable_fhe: with homomorphic encryption the server sees no model, and our algorithms read each of them; "
            "set enable_fhe to false"
        )
    if not _is_on(args, "enable_dp"):
        return
    solution = str(getattr(args, "dp_solution_type", "")).strip()
    if solution == DP_CDP and algorithm.transductive:
        raise UserError(
            f"dp_solution_type {DP_CDP!r} adds its noise to the average, but {algorithm.name} refines by the single, "
            "un-noised models and would undo the promise; take 'ldp', or federated_optimizer FedAvg"
        )
    if solution in (NBAFL_DP, DP_CLIP):
        raise UserError(
            f"dp_solution_type {solution!r}: FedML {TESTED_VERSION} never calls its noise, so it would promise privacy "
            "and give none; take 'ldp' or 'cdp'"
        )


def check_clients(dataset: Any, clients: int) -> None:
    """Compare a project's own dataset with `client_num_in_total`, where one process holds all clients."""
    local = dataset[5] if isinstance(dataset, list | tuple) and len(dataset) == 8 else None
    if not isinstance(local, Mapping):
        return
    missing = [client for client in range(clients) if client not in local]
    if missing:
        raise UserError(
            f"train_args.client_num_in_total is {clients}, but the dataset holds {len(local)} clients (there is no "
            f"client {missing[0]}); set it to {len(local)} or load more"
        )
    if len(local) > clients:
        _log.warning(
            "the dataset holds %d clients but train_args.client_num_in_total is %d: the others never take part",
            len(local),
            clients,
        )


def _is_on(args: Any, key: str) -> bool:
    return str(getattr(args, key, False)).lower() == "true"
