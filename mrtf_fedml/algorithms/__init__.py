"""One file per algorithm: what a client does in a round, and what the server does with what comes back.

`base` is the contract and `registry` knows the algorithms by name; importing this package registers ours. Nothing here
knows FedML or how messages travel.
"""

from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientTask, ClientUpdate, NoReply, RoundReport, ServerState
from .fedavg import FedAvg
from .feddf import FedDF
from .fedmmd import FedMMD
from .fedopt import FedOpt
from .fedprox import FedProx
from .local_training import LocalTerm
from .mrtf import MrTF
from .registry import (
    OUR_PREFIX,
    algorithm_named,
    algorithm_names,
    algorithm_of,
    import_named,
    lasting_name,
    register_algorithm,
)
from .scaffold import Scaffold

__all__ = [
    "OUR_PREFIX",
    "Algorithm",
    "ClientTask",
    "ClientUpdate",
    "FedAvg",
    "FedDF",
    "FedMMD",
    "FedOpt",
    "FedProx",
    "LocalTerm",
    "MrTF",
    "NoReply",
    "RoundReport",
    "Scaffold",
    "ServerBench",
    "ServerState",
    "algorithm_named",
    "algorithm_names",
    "algorithm_of",
    "import_named",
    "lasting_name",
    "register_algorithm",
]
