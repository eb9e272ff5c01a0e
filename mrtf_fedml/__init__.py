"""MrTF: model refinery for transductive federated learning, as a plugin of FedML.

Names are imported when they are first asked for, so that `import mrtf_fedml` costs nothing and FedML is imported
only by those who use it.
"""

from __future__ import annotations

import importlib
from typing import Any

from .version import __version__

_HOMES = {
    "register": "fedml_bridge.registry",
    "unregister": "fedml_bridge.registry",
    **{
        f"{algorithm}{side}": "fedml_bridge.plugin"
        for algorithm in ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF", "MrTF")
        for side in ("Trainer", "Aggregator")
    },
    "MrTFSettings": "settings",
    "RunSettings": "settings",
    "UserError": "errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
