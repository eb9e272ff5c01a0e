"""The plugin: each algorithm as the pair that FedML asks for, a ClientTrainer and a ServerAggregator."""

from __future__ import annotations

from ..algorithms import (
    FedAvg,
    FedDF,
    FedMMD,
    FedOpt,
    FedProx,
    MrTF,
    Scaffold,
)
from .client_side import AlgorithmTrainer
from .server_side import AlgorithmAggregator


class FedAvgTrainer(AlgorithmTrainer):
    """FedAvg's client, for FedML."""

    algorithm_class = FedAvg


class FedAvgAggregator(AlgorithmAggregator):
    """FedAvg's server, for FedML."""

    algorithm_class = FedAvg


class FedProxTrainer(AlgorithmTrainer):
    """FedProx's client, for FedML."""

    algorithm_class = FedProx


class FedProxAggregator(AlgorithmAggregator):
    """FedProx's server, for FedML."""

    algorithm_class = FedProx


class FedMMDTrainer(AlgorithmTrainer):
    """FedMMD's client, for FedML."""

    algorithm_class = FedMMD


class FedMMDAggregator(AlgorithmAggregator):
    """FedMMD's server, for FedML."""

    algorithm_class = FedMMD


class FedOptTrainer(AlgorithmTrainer):
    """FedOpt's client, for FedML."""

    algorithm_class = FedOpt


class FedOptAggregator(AlgorithmAggregator):
    """FedOpt's server, for FedML."""

    algorithm_class = FedOpt


class ScaffoldTrainer(AlgorithmTrainer):
    """Scaffold's client, for FedML."""

    algorithm_class = Scaffold


class ScaffoldAggregator(AlgorithmAggregator):
    """Scaffold's server, for FedML."""

    algorithm_class = Scaffold


class FedDFTrainer(AlgorithmTrainer):
    """FedDF's client, for FedML."""

    algorithm_class = FedDF


class FedDFAggregator(AlgorithmAggregator):
    """FedDF's server, for FedML."""

    algorithm_class = FedDF


class MrTFTrainer(AlgorithmTrainer):
    """MrTF's client, for FedML."""

    algorithm_class = MrTF


class MrTFAggregator(AlgorithmAggregator):
    """MrTF's server, for FedML."""

    algorithm_class = MrTF


#: The pair that stands for each algorithm, by its name.
PAIRS: dict[str, tuple[type[AlgorithmTrainer], type[AlgorithmAggregator]]] = {
    "FedAvg": (FedAvgTrainer, FedAvgAggregator),
    "FedProx": (FedProxTrainer, FedProxAggregator),
    "FedMMD": (FedMMDTrainer, FedMMDAggregator),
    "FedOpt": (FedOptTrainer, FedOptAggregator),
    "Scaffold": (ScaffoldTrainer, ScaffoldAggregator),
    "FedDF": (FedDFTrainer, FedDFAggregator),
    "MrTF": (MrTFTrainer, MrTFAggregator),
}
