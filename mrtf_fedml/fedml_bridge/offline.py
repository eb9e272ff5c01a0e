"""`fedml.init()` with no call to the network when tracking is off, and without its noise unless it is asked for."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import fedml
from fedml.computing.scheduler.slave.client_diagnosis import ClientDiagnosis
from fedml.core.mlops import MLOpsConfigs, MLOpsStore

#: What FedML reads from the platform's answer, for a run that will not use it: MQTT, S3, platform, Docker.
_NO_PLATFORM: tuple[dict[str, Any], ...] = ({}, {}, {"LOG_SERVER_URL": ""}, {})

#: Where `fedml.init` turns to the network: for a configuration, and to report which of its services it can reach.
_CALLS: tuple[tuple[type, str, Any], ...] = (
    (MLOpsConfigs, "fetch_all_configs", _NO_PLATFORM),
    (ClientDiagnosis, "check_open_connection", False),
    (ClientDiagnosis, "check_s3_connection", False),
    (ClientDiagnosis, "check_mqtt_connection", False),
)

_online: list[tuple[type, str, Any]] = []


def wants_platform(args: Any) -> bool:
    """Whether the user asked for FedML's tracking, which needs FedML's platform."""
    words = [getattr(args, key, False) for key in ("enable_tracking", "using_mlops")]
    return any(str(word).lower() == "true" for word in words)


def stay_offline() -> None:
    """From now on FedML asks its platform for nothing in a run whose tracking is off. Twice does no harm.

    `fedml.init` fetches a configuration even where it will not be used: five tries without a timeout.
    """
    if _online:
        return
    for owner, name, instead in _CALLS:
        original = owner.__dict__[name]
        _online.append((owner, name, original))
        setattr(owner, name, staticmethod(_unless_wanted(original.__func__, instead)))


def go_online() -> None:
    """Give FedML its calls back as they were."""
    while _online:
        setattr(*_online.pop())


@contextlib.contextmanager
def offline(args: Any) -> Iterator[None]:
    """Within the block FedML asks its platform for nothing, unless tracking is on."""
    if wants_platform(args) or _online:
        yield
        return
    stay_offline()
    try:
        yield
    finally:
        go_online()


def _unless_wanted(original: Any, instead: Any) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        # `fedml.init` puts its arguments there before it fetches anything. Its report on the network comes earlier;
        # what it knows then is whether an agent of the platform has started the process.
        args = MLOpsStore.mlops_args or SimpleNamespace(using_mlops=os.environ.get("FEDML_USING_MLOPS"))
        return original(*given, **named) if wants_platform(args) else instead

    return call


def initialise(args: Any, verbose: bool = False) -> Any:
    """`fedml.init`, offline, and quiet unless `verbose`."""
    if verbose:
        with offline(args):
            return fedml.init(args, check_env=False, should_init_logs=True)
    with offline(args), contextlib.redirect_stdout(io.StringIO()):
        initialised = fedml.init(args, check_env=False, should_init_logs=False)
    # FedML speaks through the root logger; ours has handlers of its own.
    logging.getLogger().setLevel(logging.ERROR)
    return initialised
