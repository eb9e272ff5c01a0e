"""`train_args` and `validation_args`: the rounds, and what a client does in one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .kinds import VALIDATED, Count, NonNegative, Positive, Steps


@dataclass(frozen=True, config=VALIDATED)
class TrainSettings:
    """`train_args` and `validation_args`: the rounds and what a client does in one."""

    #: The algorithm: `MrTF`, `FedDF`, `FedAvg`, `FedProx`, `FedMMD`, `FedOpt`, `Scaffold`, `FadingScaffold`, `FedBE`,
    #: `FedAUX`, `UWA`, `SHOT`, `LAME`, or your own as
    #: `package.module:Class`. In a FedML project its own words stay FedML's; ours are `mrtf:FedAvg` and so on.
    federated_optimizer: str = "MrTF"
    #: K, how many clients there are. Where the data say it (`partition_method: user`, `loader`), leave it out.
    client_num_in_total: Count = 20
    #: How many clients take part in each round; at most all of them.
    client_num_per_round: Count = 5
    #: With fewer updates that can be used than this, other clients are asked too; where none are left, or after
    #: `max_retries`, the round leaves the model as it was, and the report says so.
    min_clients: Count = 1
    #: How often other clients are asked in one round.
    max_retries: Steps = 2
    #: How many rounds. A run that is resumed may be given more.
    comm_round: Count = 20
    #: E, a client's passes over its own samples per round.
    epochs: Count = 1
    #: Samples per step of a client.
    batch_size: Count = 64
    #: The clients' optimiser. The paper's is SGD; Scaffold takes no other.
    client_optimizer: Literal["sgd", "adam"] = "sgd"
    #: The clients' rate. The paper tries 0.01 to 0.1 on images.
    learning_rate: Positive = 0.03
    #: The momentum of the clients' SGD; Adam has none of it. 0 is plain SGD.
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    #: The clients' weight decay, as an L2 term of the gradient. 0 is none.
    weight_decay: NonNegative = 1e-5
    #: Bound of the gradient's norm in local training; `null` clips nothing and spares the norm. It is not FedML's
    #: `max_grad_norm`, which belongs to DP.
    clip_grad_norm: Positive | None = 100.0
    #: theta_{t+1} is the plain mean over the chosen clients (the paper), or weighted by sample counts.
    aggregation: Literal["uniform", "samples"] = "uniform"
    #: The server's set is scored, where labels exist, every so many rounds and at the last.
    frequency_of_the_test: Count = 1
