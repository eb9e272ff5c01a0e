"""The hyper-parameters of a run as the paper has them, what a budget makes of them, and the configuration they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...errors import UserError
from ...settings.sections import Config
from .shelf import EMBEDDED, LEAST_OF_EMBEDDED, Data

#: Below the first of each pair a budget lowers nothing: fewer would be another scene.
LEAST = {"rounds": (5, 2), "clients": (20, 20), "chosen": (4, 2), "server": (500, 100), "steps": (100, 20)}
#: A smaller budget asks whether a scene runs at all: then these bounds shrink with it, down to the second of each pair,
#: and so do the samples of each client, down to so many, and so many of each of its classes.
SMALL, LEAST_OF_CLIENT, OF_EACH_CLASS = 0.05, 40, 4


@dataclass(frozen=True)
class Split:
    """How the samples are dealt: `label` with C-bar, `dirichlet` with alpha, `user`, `iid`."""

    method: str
    value: float = 0.0

    @property
    def title(self) -> str:
        """As the paper writes it."""
        return {"label": f"C̄={self.value:g}", "dirichlet": f"α={self.value:.1f}"}.get(self.method, f"by {self.method}")

    def args(self, classes: int, of: int) -> dict[str, Any]:
        """`data_args`; C-bar of `of` classes is the same share of the classes that there are."""
        if self.method == "label":
            return {"partition_method": "label", "classes_per_client": max(1, round(self.value * classes / of))}
        if self.method == "dirichlet":
            return {"partition_method": "dirichlet", "partition_alpha": self.value, "min_samples": 2}
        return {"partition_method": self.method}


@dataclass(frozen=True)
class Parameters:
    """One run's: K, clients per round, T, E, the network, the split, the refining steps and the noise."""

    dataset: str
    split: Split
    clients: int = 100
    chosen: int = 10
    rounds: int = 200
    epochs: int = 3
    model: str = ""
    server_dataset: str = ""
    sigma: float = 0.0
    refine_steps: int = 500

    @property
    def title(self) -> str:
        """All of it in one line, for a person."""
        network = f", {self.model}" if self.model else ""
        noise = f", sigma {self.sigma:g}" if self.sigma else ""
        clients = "the users" if self.split.method == "user" else str(self.clients)
        return (
            f"K={clients}, {self.chosen} clients per round, T={self.rounds}, E={self.epochs}, "
            f"{self.refine_steps} refining steps{network}{noise}"
        )


@dataclass(frozen=True)
class Budget:
    """A fraction of the rounds, of the clients with their samples, and of the server's samples and refining steps."""

    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UserError(
                f"--budget is {self.share:g}; it is the fraction of the paper's rounds, clients and server samples "
                "that is run, above 0 and at most 1, such as 0.05"
            )

    def of(self, number: int, least: int) -> int:
        """The share of a number, at least so much of it, and never more than it.

        >>> Budget(0.1).of(200, 3), Budget(0.1).of(20, 3), Budget(0.1).of(2, 3)
        (20, 3, 2)
        """
        return min(number, max(least, round(number * self.share)))

    def least(self, what: str) -> int:
        """The lower bound of a number of `LEAST`.

        >>> Budget(0.05).least("steps"), Budget(0.02).least("steps"), Budget(0.001).least("steps")
        (100, 40, 20)
        """
        usual, smallest = LEAST[what]
        return max(smallest, round(usual * min(1.0, self.share / SMALL)))

    def of_client(self, samples: int) -> int:
        """How many of a client's samples it keeps.

        >>> Budget(0.05).of_client(500), Budget(0.02).of_client(500), Budget(0.02).of_client(50)
        (500, 200, 40)
        """
        return min(samples, max(LEAST_OF_CLIENT, round(samples * min(1.0, self.share / SMALL))))

    def on(self, parameters: Parameters) -> Parameters:
        """The parameters that fit the budget; E, C-bar and alpha stay."""
        return replace(
            parameters,
            clients=self.of(parameters.clients, self.least("clients")),
            chosen=self.of(parameters.chosen, self.least("chosen")),
            rounds=self.of(parameters.rounds, self.least("rounds")),
            refine_steps=self.of(parameters.refine_steps, self.least("steps")),
        )

    def sentence(self) -> str:
        """What it changes, for every figure; nothing where it changes nothing."""
        if self.share == 1:
            return ""
        sentence = (
            f"budget {self.share:g} of the paper's rounds (at least {self.least('rounds')}), clients and their samples "
            f"(at least {self.least('clients')}), clients per round (at least {self.least('chosen')}), server samples "
            f"(at least {self.least('server')}) and refining steps (at least {self.least('steps')})"
        )
        if self.share < SMALL:
            sentence += f", and {self.share / SMALL:.2g} of each client's samples (at least {LEAST_OF_CLIENT}, and "
            sentence += f"{OF_EACH_CLASS} of each class)"
        return sentence


def configuration(
    asked: Parameters, budget: Budget, data: Data, server: Data | None = None, rate: float | None = None
) -> Config:
    """FedML's sections for one run of the paper's, within the budget."""
    samples, server_samples, classes = data.sizes
    fewer, split = budget.on(asked), asked.split
    if split.method == "user" and not data.by_user:
        # Nobody is known to have made what stands in.
        split = Split("dirichlet", 1.0)
    if data.args["dataset"] == EMBEDDED:
        fewer = replace(fewer, clients=min(fewer.clients, samples // LEAST_OF_EMBEDDED))
    if fewer.clients > samples // 2:
        fewer = replace(fewer, clients=samples // 2)
    model = data.fitting(asked.model) if asked.model else data.model
    data_args = {**data.args, **split.args(classes, data.dataset.classes)}
    if split.method == "user":
        # The paper takes a tenth of LEAF's users; whoever has few of them takes as many as a round asks for.
        share = 1.0 if data.stands_in else max(0.1 * budget.share, 0.02)
        kept, users = data.thinned(budget.of_client)
        if kept is not None:
            data_args["client_samples"] = kept
        data_args["dset_ratio"] = min(1.0, max(share, fewer.chosen / users))
        fewer = replace(fewer, chosen=min(fewer.chosen, users))
    elif budget.share < 1 and data.args["dataset"] != EMBEDDED:
        # As many samples for each client as in the paper, as long as the budget allows: K and N shrink alike.
        shared = samples * fewer.clients // asked.clients
        if budget.share < SMALL:
            shared = budget.of_client(shared // fewer.clients) * fewer.clients
        # A few of each of its classes, or a class has fewer samples than clients that hold it.
        least = max(10, OF_EACH_CLASS * data_args.get("classes_per_client", 0)) * fewer.clients
        data_args["client_samples"] = min(max(shared, least), samples)
    if server is not None:
        data_args["server_dataset"] = server.args["dataset"]
        if "data_file" in server.args:
            data_args["server_file"] = server.args["data_file"]
        else:
            data_args["data_cache_dir"] = server.args["data_cache_dir"]
        server_samples = server.sizes[1]
    # How many samples the chosen users bring is known only when they are chosen.
    if budget.share < 1 and (split.method != "user" or data.stands_in):
        data_args["server_samples"] = budget.of(server_samples, budget.least("server"))
    config: Config = {
        "common_args": {"training_type": "simulation", "random_seed": 0, "keep_features": False, "keep_states": 1},
        "data_args": data_args,
        "model_args": {"model": model},
        "train_args": {
            "client_num_in_total": fewer.clients,
            "client_num_per_round": min(fewer.chosen, fewer.clients),
            "comm_round": fewer.rounds,
            "epochs": fewer.epochs,
            "batch_size": data.dataset.batch_size,
            "client_optimizer": "sgd",
            "learning_rate": data.rate if rate is None else rate,
            "momentum": 0.9,
        },
        "device_args": {"using_gpu": False},
        "comm_args": {"backend": "sp"},
        "mrtf_args": {"refine_steps": fewer.refine_steps},
    }
    if split.method == "user":
        del config["train_args"]["client_num_in_total"]
    if asked.sigma:
        config["dp_args"] = {"sigma": asked.sigma}
    return config
