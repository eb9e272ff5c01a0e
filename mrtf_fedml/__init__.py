"""MrTF: model refinery for transductive federated learning, as a plugin of FedML.

Names are imported on first access, so that `import mrtf_fedml` is fast and FedML is imported only if it is used.
`<name>Trainer` and `<name>Aggregator` of every registered algorithm are attributes too.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from .process.tuning import disable_unusable_amx
from .version import __version__

# Two warnings of FedML's imports about its own dependencies, which users cannot avoid.
for _message in ("pkg_resources is deprecated", "urllib3 .* doesn't match a supported version"):
    warnings.filterwarnings("ignore", message=_message)

# Must run before the first product in bfloat16, which could otherwise end the process.
disable_unusable_amx()

#: Public name -> module that defines it.
_LAZY_EXPORTS = {
    "register": "fedml_bridge.plugin",
    "unregister": "fedml_bridge.plugin",
    **dict.fromkeys(
        (
            "Algorithm",
            "ClientTask",
            "ClientUpdate",
            "LocalTerm",
            "Metric",
            "ModelSelection",
            "RoundReport",
            "ServerContext",
            "ServerState",
            "TargetTransform",
            "TeacherWeighting",
            "register_algorithm",
        ),
        "algorithms",
    ),
    "Callback": "callbacks.base",
    "MrTFSettings": "config",
    "RunSettings": "config",
    "UserError": "errors",
    "Result": "api.result",
    "Teacher": "models.existing",
    "label": "api.label",
    "run": "api.run",
}

#: FedML adapters of our algorithms: trainer and aggregator.
_ADAPTERS = tuple(
    f"{algorithm}{side}"
    for algorithm in (
        *("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF", "MrTF"),
        *("FedBE", "FedAUX", "UWA", "SHOT", "LAME", "MeasuredScaffold"),
    )
    for side in ("Trainer", "Aggregator")
)

__all__ = ["__version__", *_LAZY_EXPORTS, *_ADAPTERS]


def __getattr__(name: str) -> Any:
    with warnings.catch_warnings():
        # FedML's imports raise many warnings about its own dependencies.
        warnings.simplefilter("ignore")
        if name in _LAZY_EXPORTS:
            return getattr(importlib.import_module(f"{__name__}.{_LAZY_EXPORTS[name]}"), name)
        if name.endswith(("Trainer", "Aggregator")) and not name.startswith("_"):
            from .fedml_bridge.adapters import adapter_by_name

            return adapter_by_name(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
