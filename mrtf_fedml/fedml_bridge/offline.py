"""`fedml.init()` with no call to the network when tracking is off, and without its noise unless it is asked for."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any

import fedml
from fedml.core.mlops import MLOpsConfigs

#: What FedML reads from the platform's answer, for a run that will not use it: MQTT, S3, platform, Docker.
_NO_PLATFORM: tuple[dict[str, Any], ...] = ({}, {}, {"LOG_SERVER_URL": ""}, {})


def wants_platform(args: Any) -> bool:
    """Whether the user asked for FedML's tracking, which needs FedML's platform."""
    words = [getattr(args, key, False) for key in ("enable_tracking", "using_mlops")]
    return any(str(word).lower() == "true" for word in words)


@contextlib.contextmanager
def offline(args: Any) -> Iterator[None]:
    """Within the block FedML asks its platform for nothing, unless tracking is on.

    `fedml.init` fetches a configuration even where it will not be used: five tries without a timeout.
    """
    if wants_platform(args):
        yield
        return
    online = MLOpsConfigs.__dict__["fetch_all_configs"]
    MLOpsConfigs.fetch_all_configs = staticmethod(lambda: _NO_PLATFORM)
    try:
        yield
    finally:
        MLOpsConfigs.fetch_all_configs = online


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
