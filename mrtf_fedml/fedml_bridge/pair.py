"""The pair that FedML asks for, a ClientTrainer and a ServerAggregator, made from an algorithm's class."""

from __future__ import annotations

from ..algorithms import Algorithm, algorithm_named
from ..errors import UserError
from .client_side import AlgorithmTrainer
from .server_side import AlgorithmAggregator

Pair = tuple[type[AlgorithmTrainer], type[AlgorithmAggregator]]

#: Made once per class, so that `mrtf_fedml.MrTFTrainer` is always the same.
_made: dict[type[Algorithm], Pair] = {}


def pair_of(algorithm: type[Algorithm]) -> Pair:
    """The algorithm's trainer and aggregator.

    They are called `<name>Trainer` and `<name>Aggregator`, and are importable from `mrtf_fedml` under these names as
    soon as the algorithm is registered.
    """
    if algorithm not in _made:
        trainer = type(
            f"{algorithm.name}Trainer",
            (AlgorithmTrainer,),
            {
                "__doc__": f"{algorithm.name}'s client, for FedML.",
                "__module__": "mrtf_fedml",
                "algorithm_class": algorithm,
            },
        )
        aggregator = type(
            f"{algorithm.name}Aggregator",
            (AlgorithmAggregator,),
            {
                "__doc__": f"{algorithm.name}'s server, for FedML.",
                "__module__": "mrtf_fedml",
                "algorithm_class": algorithm,
            },
        )
        _made[algorithm] = trainer, aggregator
    return _made[algorithm]


def half_named(name: str) -> type[AlgorithmTrainer] | type[AlgorithmAggregator]:
    """`<name>Trainer` or `<name>Aggregator` of a registered algorithm."""
    for place, suffix in enumerate(("Trainer", "Aggregator")):
        if name.endswith(suffix):
            try:
                return pair_of(algorithm_named(name.removesuffix(suffix)))[place]
            except UserError:
                break
    raise AttributeError(f"module 'mrtf_fedml' has no attribute {name!r}")
