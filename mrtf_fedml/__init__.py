"""MrTF: model refinery for transductive federated learning, as a plugin of FedML.

Names are imported when they are first asked for, so that `import mrtf_fedml` costs nothing and FedML is imported
only by those who use it. `<name>Trainer` and `<name>Aggregator` of every registered algorithm are names too.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from .process.instructions import leave_hidden_tiles_alone
from .version import __version__

# FedML's imports warn of their own dependencies, which its users can do nothing about. Whoever imports us first is
# spared these two; every other warning is heard.
for _message in ("pkg_resources is deprecated", "urllib3 .* doesn't match a supported version"):
    warnings.filterwarnings("ignore", message=_message)

# A program that multiplies in bfloat16 must not die of it, whichever of our doors it comes in by.
leave_hidden_tiles_alone()

_HOMES = {
    "register": "fedml_bridge.registry",
    "unregister": "fedml_bridge.registry",
    **dict.fromkeys(
        (
            "Algorithm",
            "ClientTask",
            "ClientUpdate",
            "LocalTerm",
            "RoundReport",
            "ServerBench",
            "ServerState",
            "register_algorithm",
        ),
        "algorithms",
    ),
    "Callback": "rounds.callbacks",
    "MrTFSettings": "settings",
    "RunSettings": "settings",
    "UserError": "errors",
    "Result": "calls.result",
    "label": "calls.label",
    "run": "calls.run",
}

_HALVES = tuple(
    f"{algorithm}{side}"
    for algorithm in (
        *("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF", "MrTF"),
        *("FedBE", "FedAUX", "UWA", "SHOT", "LAME", "FadingScaffold"),
    )
    for side in ("Trainer", "Aggregator")
)

__all__ = ["__version__", *_HOMES, *_HALVES]


def __getattr__(name: str) -> Any:
    with warnings.catch_warnings():
        # FedML's imports warn of their own dependencies at length.
        warnings.simplefilter("ignore")
        if name in _HOMES:
            return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        if name.endswith(("Trainer", "Aggregator")) and not name.startswith("_"):
            from .fedml_bridge.pair import half_named

            return half_named(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
