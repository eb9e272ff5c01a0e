"""`train_args` and `validation_args`: the rounds, and what a client does in one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count, NonNegative, Positive


@dataclass(frozen=True, config=VALIDATED)
class TrainSettings:
    """`train_args` and `validation_args`: the rounds and what a client does in one."""

    federated_optimizer: str = "MrTF"
    client_num_in_total: Count = 20
    client_num_per_round: Count = 5
    comm_round: Count = 20
    epochs: Count = 1
    batch_size: Count = 64
    client_optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 1e-5
    #: Bound of the gradient's norm in local training. Not FedML's `max_grad_norm`, which belongs to DP.
    clip_grad_norm: Positive = 100.0
    #: theta_{t+1} is the plain mean over the chosen clients (the paper), or weighted by sample counts.
    aggregation: Literal["uniform", "samples"] = "uniform"
    #: The server's set is scored, where labels exist, every so many rounds and at the last.
    frequency_of_the_test: Count = 1
