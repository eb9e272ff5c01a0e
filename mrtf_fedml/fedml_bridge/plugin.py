"""The plugin: each algorithm as the pair that FedML asks for, a ClientTrainer and a ServerAggregator."""

from __future__ import annotations

from ..algorithms import FedAvg, FedDF, MrTF
from .client_side import AlgorithmTrainer
from .server_side import AlgorithmAggregator


class FedAvgTrainer(AlgorithmTrainer):
    """FedAvg's client, for FedML."""

    algorithm_class = FedAvg


class FedAvgAggregator(AlgorithmAggregator):
    """FedAvg's server, for FedML."""

    algorithm_class = FedAvg


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
    "FedDF": (FedDFTrainer, FedDFAggregator),
    "MrTF": (MrTFTrainer, MrTFAggregator),
}
