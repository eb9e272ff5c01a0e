"""FedAvg, as used in Sect. 3.2 of the MrTF paper.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.
"""

from __future__ import annotations

from typing import ClassVar

from .base import Algorithm
from .registry import register_algorithm


@register_algorithm
class FedAvg(Algorithm):
    """Train locally, average: theta_{t+1} = 1/|S_t| sum_k theta_{t,k}. The rules are the contract's own."""

    name: ClassVar[str] = "FedAvg"
    allows_different_models: ClassVar[bool] = True
    allows_momentum: ClassVar[bool] = True
