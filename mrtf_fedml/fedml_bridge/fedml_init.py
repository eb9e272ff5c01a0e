"""`fedml.init` as we call it: without the network when tracking is off, quiet, and with a start for `backend: NCCL`.

FedML advertises `backend: NCCL` and does not ship it: `fedml.init` imports its start from a module that the wheel does
not have. We supply that module; it starts MPI ranks, each of which needs a GPU of its own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import fedml
from fedml.computing.scheduler.slave.client_diagnosis import ClientDiagnosis
from fedml.core.mlops import MLOpsConfigs, MLOpsStore

from ..errors import UserError
from .args import is_enabled

#: What FedML reads from the platform's configuration, for a run that does not use it: MQTT, S3, platform, Docker.
_NO_PLATFORM: tuple[dict[str, Any], ...] = ({}, {}, {"LOG_SERVER_URL": ""}, {})

#: The network calls of `fedml.init`: for a configuration, and to report which of its services it can reach.
_CALLS: tuple[tuple[type, str, Any], ...] = (
    (MLOpsConfigs, "fetch_all_configs", _NO_PLATFORM),
    (ClientDiagnosis, "check_open_connection", False),
    (ClientDiagnosis, "check_s3_connection", False),
    (ClientDiagnosis, "check_mqtt_connection", False),
)

_originals: list[tuple[Any, str, Any]] = []

#: Parts of lines of FedML's report that are not true in runs without tracking.
_FALSE_LINES = ("MPI4py is NOT installed", "can not connect to")

#: The module that FedML imports for NCCL, and the function that it calls, in FedML's spelling.
_NCCL_MODULE = "fedml.simulation.nccl.base_framework.common"
_NCCL_FUNCTION = "FedML_NCCL_Similulation_init"


def initialize(args: Any, verbose: bool = False) -> Any:
    """`fedml.init` for a run of ours: offline, and quiet unless `verbose`."""
    with _nccl_module():
        if verbose:
            with offline(args):
                return fedml.init(args, check_env=False, should_init_logs=True)
        with offline(args), contextlib.redirect_stdout(io.StringIO()):
            initialized = fedml.init(args, check_env=False, should_init_logs=False)
    # FedML logs through the root logger; ours has handlers of its own.
    logging.getLogger().setLevel(logging.ERROR)
    return initialized


def uses_platform(args: Any) -> bool:
    """Whether the user enabled FedML's tracking, which needs FedML's platform."""
    return is_enabled(args, "enable_tracking") or is_enabled(args, "using_mlops")


def block_platform_calls() -> None:
    """From now on FedML does not call its platform in runs whose tracking is off. Calling it twice is harmless.

    `fedml.init` fetches a configuration even where it is not used: five tries without a timeout.
    """
    if _originals:
        return
    for owner, name, replacement in _CALLS:
        original = owner.__dict__[name]
        _originals.append((owner, name, original))
        setattr(owner, name, staticmethod(_call_if_used(original.__func__, replacement)))
    _originals.append((fedml, "collect_env", fedml.collect_env))
    fedml.collect_env = _without_false_lines(fedml.collect_env)


def restore_platform_calls() -> None:
    """Undo `block_platform_calls`."""
    while _originals:
        setattr(*_originals.pop())


@contextlib.contextmanager
def offline(args: Any) -> Iterator[None]:
    """Within the block FedML does not call its platform, unless tracking is on."""
    if uses_platform(args) or _originals:
        yield
        return
    block_platform_calls()
    try:
        yield
    finally:
        restore_platform_calls()


def _call_if_used(original: Any, replacement: Any) -> Any:
    def call(*positional: Any, **named: Any) -> Any:
        # `fedml.init` stores its arguments there before it fetches a configuration. Its report on the network comes
        # earlier; then only the variable of the platform's agent is known.
        args = MLOpsStore.mlops_args or SimpleNamespace(using_mlops=os.environ.get("FEDML_USING_MLOPS"))
        return original(*positional, **named) if uses_platform(args) else replacement

    return call


def _without_false_lines(collect_env: Any) -> Any:
    """FedML's report on the machine without what is not true here.

    It says that MPI4py is not installed where it only was not imported, and that it cannot connect to services that a
    run without tracking does not use.
    """

    def collect(*positional: Any, **named: Any) -> None:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            collect_env(*positional, **named)
        lines = [line for line in text.getvalue().splitlines() if not any(part in line for part in _FALSE_LINES)]
        print("\n".join(lines))

    return collect


def supply_nccl_module(is_ours: Callable[[Any], bool]) -> None:
    """Give FedML the module that it lacks, for the runs of our algorithms."""

    def start(args: Any) -> Any:
        if not is_ours(args):
            raise UserError(
                f"FedML {fedml.__version__} ships no simulator for backend NCCL, and federated_optimizer "
                f"{args.federated_optimizer!r} is FedML's own; set backend: MPI (comm_args), or name one of ours"
            )
        return fedml._init_simulation_mpi(args)

    module = ModuleType(_NCCL_MODULE, __doc__)
    setattr(module, _NCCL_FUNCTION, start)
    sys.modules[_NCCL_MODULE] = module


def remove_nccl_module() -> None:
    """Undo `supply_nccl_module`."""
    sys.modules.pop(_NCCL_MODULE, None)


@contextlib.contextmanager
def _nccl_module() -> Iterator[None]:
    """Within the block FedML can start NCCL for every run."""
    before = sys.modules.get(_NCCL_MODULE)
    supply_nccl_module(lambda args: True)
    try:
        yield
    finally:
        remove_nccl_module()
        if before is not None:
            sys.modules[_NCCL_MODULE] = before
