"""What the algorithms that MrTF is compared with add to `train_args`. Each key is read by one algorithm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, NonNegative, Positive


@dataclass(frozen=True, config=VALIDATED)
class BaselineSettings:
    """The keys of FedProx, FedMMD, FedOpt and Scaffold. FedAvg, FedDF and MrTF read none of them."""

    #: mu of FedProx, the weight of 1/2 ||theta - theta_t||^2. 0 means no effect: FedAvg again. 0.001 to 1 make sense.
    fedprox_mu: NonNegative = 0.01
    #: Weight of FedMMD's squared discrepancy beside the cross-entropy. 0 means no effect: FedAvg again.
    mmd_weight: NonNegative = 0.1
    #: What FedOpt's server does with the mean update. `sgd` with server_lr 1 and server_momentum 0 is FedAvg.
    server_optimizer: Literal["sgd", "adam", "yogi", "adagrad"] = "sgd"
    #: FedOpt's server step. By itself 1 for `sgd`, which keeps an update's size, and 0.01 for the adaptive ones.
    server_lr: Positive | None = None
    #: Momentum of FedOpt's `sgd`, and beta_1 of `adam`, `yogi` and `adagrad`.
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    #: beta_2 of FedOpt's `adam` and `yogi`.
    server_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    #: tau of FedOpt's adaptive optimisers: smaller is more adaptive.
    server_tau: Positive = 1e-3
    #: How Scaffold renews a client's variate: 1, the gradient at theta_t (one more pass over the client's samples),
    #: or 2, what the client's own steps amount to.
    scaffold_option: Literal[1, 2] = 2
    #: Whether Scaffold's clients keep `momentum`; without it they step by learning_rate alone.
    scaffold_momentum: bool = True
