"""One file per algorithm: what a client does in a round, and what the server does with what comes back.

`base` is the contract and `registry` knows the algorithms by name; importing this package registers ours. Nothing here
knows FedML or how messages travel.
"""

from .base import Algorithm
from .baselines.fedaux import FedAUX
from .baselines.fedbe import FedBE
from .baselines.lame import LAME
from .baselines.shot import SHOT
from .baselines.uwa import UWA
from .fedavg import FedAvg
from .feddf import FedDF
from .fedmmd import FedMMD
from .fedopt import FedOpt
from .fedprox import FedProx
from .fedridge import FedRidge
from .local_training import LocalTerm
from .mrtf import ModelSelection, MrTF, RoundContext, TargetTransform, TeacherWeighting
from .registry import (
    OUR_PREFIX,
    algorithm_by_name,
    algorithm_names,
    build_algorithm,
    import_algorithms,
    importable_name,
    register_algorithm,
)
from .scaffold import MeasuredScaffold, Scaffold
from .server_context import ModelPredictions, ServerContext
from .types import ClientFailure, ClientTask, ClientUpdate, Metric, RoundReport, ServerState

__all__ = [
    "LAME",
    "OUR_PREFIX",
    "SHOT",
    "UWA",
    "Algorithm",
    "ClientFailure",
    "ClientTask",
    "ClientUpdate",
    "FedAUX",
    "FedAvg",
    "FedBE",
    "FedDF",
    "FedMMD",
    "FedOpt",
    "FedProx",
    "FedRidge",
    "LocalTerm",
    "MeasuredScaffold",
    "Metric",
    "ModelPredictions",
    "ModelSelection",
    "MrTF",
    "RoundContext",
    "RoundReport",
    "Scaffold",
    "ServerContext",
    "ServerState",
    "TargetTransform",
    "TeacherWeighting",
    "algorithm_by_name",
    "algorithm_names",
    "build_algorithm",
    "import_algorithms",
    "importable_name",
    "register_algorithm",
]
