"""One file per algorithm: what a client does in a round, and what the server does with what comes back.

`base` is the contract and `registry` knows the algorithms by name; importing this package registers ours. Nothing here
knows FedML or how messages travel.
"""

from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientTask, ClientUpdate, NoReply, RoundReport, ServerState
from .fading_scaffold import FadingScaffold
from .fedaux import FedAUX
from .fedavg import FedAvg
from .fedbe import FedBE
from .feddf import FedDF
from .fedmmd import FedMMD
from .fedopt import FedOpt
from .fedprox import FedProx
from .lame import LAME
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
from .shot import SHOT
from .uwa import UWA

__all__ = [
    "LAME",
    "OUR_PREFIX",
    "SHOT",
    "UWA",
    "Algorithm",
    "ClientTask",
    "ClientUpdate",
    "FadingScaffold",
    "FedAUX",
    "FedAvg",
    "FedBE",
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
