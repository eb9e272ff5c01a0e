"""An experiment of the paper: its hyper-parameters, its budget, what the user requests, and what comes out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrtf_fedml.config.schema import Config
from mrtf_fedml.errors import UserError, suggest_name
from mrtf_fedml.experiments.runner import ComparisonProgress

from .datasets import DATASETS, EMBEDDED, MIN_EMBEDDED_SAMPLES, Data, DataFolder
from .paper_numbers import paper_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Lower bounds of what a budget reduces. The first of each pair holds down to the budget `SMALL`.
MINIMA = {"rounds": (5, 2), "clients": (20, 20), "chosen": (4, 2), "server": (500, 100), "steps": (100, 20)}
#: A budget below `SMALL` only tests that an experiment runs: the bounds shrink with it down to the second of each pair,
#: and the samples of a client shrink too, down to `MIN_CLIENT_SAMPLES` and `MIN_CLASS_SAMPLES` of each of its classes.
SMALL, MIN_CLIENT_SAMPLES, MIN_CLASS_SAMPLES = 0.05, 40, 4


@dataclass(frozen=True)
class Split:
    """A partition of the samples: `label` with C-bar, `dirichlet` with alpha, `user` or `iid`."""

    method: str
    value: float = 0.0

    @property
    def title(self) -> str:
        """The name in the paper."""
        return {"label": f"C̄={self.value:g}", "dirichlet": f"α={self.value:.1f}"}.get(self.method, f"by {self.method}")

    def args(self, classes: int, of: int) -> dict[str, Any]:
        """The `data_args`; C-bar of `of` classes is scaled to `classes` classes."""
        if self.method == "label":
            return {"partition_method": "label", "classes_per_client": max(1, round(self.value * classes / of))}
        if self.method == "dirichlet":
            return {"partition_method": "dirichlet", "partition_alpha": self.value, "min_samples": 2}
        return {"partition_method": self.method}


@dataclass(frozen=True)
class Parameters:
    """The hyper-parameters of one run: K, clients per round, T, E, network, split, refinement steps and noise."""

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
        """The hyper-parameters in one line."""
        network = f", {self.model}" if self.model else ""
        noise = f", sigma {self.sigma:g}" if self.sigma else ""
        clients = "the users" if self.split.method == "user" else str(self.clients)
        return (
            f"K={clients}, {self.chosen} clients per round, T={self.rounds}, E={self.epochs}, "
            f"{self.refine_steps} refining steps{network}{noise}"
        )


@dataclass(frozen=True)
class Budget:
    """A fraction of the rounds, the clients and their samples, the server's samples and the refinement steps."""

    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UserError(
                f"--budget is {self.share:g}; it is the fraction of the paper's rounds, clients and server samples "
                "that is run, above 0 and at most 1, such as 0.05"
            )

    def scale(self, number: int, least: int) -> int:
        """The share of a number, at least `least` and at most the number.

        >>> Budget(0.1).scale(200, 3), Budget(0.1).scale(20, 3), Budget(0.1).scale(2, 3)
        (20, 3, 2)
        """
        return min(number, max(least, round(number * self.share)))

    def minimum(self, name: str) -> int:
        """The lower bound `MINIMA[name]` for this budget.

        >>> Budget(0.05).minimum("steps"), Budget(0.02).minimum("steps"), Budget(0.001).minimum("steps")
        (100, 40, 20)
        """
        usual, smallest = MINIMA[name]
        return max(smallest, round(usual * min(1.0, self.share / SMALL)))

    def scale_client(self, samples: int) -> int:
        """The number of samples that a client keeps.

        >>> Budget(0.05).scale_client(500), Budget(0.02).scale_client(500), Budget(0.02).scale_client(50)
        (500, 200, 40)
        """
        return min(samples, max(MIN_CLIENT_SAMPLES, round(samples * min(1.0, self.share / SMALL))))

    def apply(self, parameters: Parameters) -> Parameters:
        """The reduced parameters; E, C-bar and alpha do not change."""
        return replace(
            parameters,
            clients=self.scale(parameters.clients, self.minimum("clients")),
            chosen=self.scale(parameters.chosen, self.minimum("chosen")),
            rounds=self.scale(parameters.rounds, self.minimum("rounds")),
            refine_steps=self.scale(parameters.refine_steps, self.minimum("steps")),
        )

    def describe(self) -> str:
        """What the budget reduces, for the footer of a figure; empty for the full size."""
        if self.share == 1:
            return ""
        sentence = (
            f"budget {self.share:g} of the paper's rounds (at least {self.minimum('rounds')}), clients and their "
            f"samples (at least {self.minimum('clients')}), clients per round (at least {self.minimum('chosen')}), "
            f"server samples (at least {self.minimum('server')}) and refining steps (at least "
            f"{self.minimum('steps')})"
        )
        if self.share < SMALL:
            sentence += f", and {self.share / SMALL:.2g} of each client's samples (at least {MIN_CLIENT_SAMPLES}, and "
            sentence += f"{MIN_CLASS_SAMPLES} of each class)"
        return sentence


def configuration(
    parameters: Parameters, budget: Budget, data: Data, server: Data | None = None, rate: float | None = None
) -> Config:
    """FedML's sections for one run of the paper, reduced by the budget."""
    samples, server_samples, classes = data.sizes
    reduced, split = budget.apply(parameters), parameters.split
    if split.method == "user" and not data.by_user:
        # The stand-in has no users.
        split = Split("dirichlet", 1.0)
    if data.args["dataset"] == EMBEDDED:
        reduced = replace(reduced, clients=min(reduced.clients, samples // MIN_EMBEDDED_SAMPLES))
    if reduced.clients > samples // 2:
        reduced = replace(reduced, clients=samples // 2)
    model = data.suitable_model(parameters.model) if parameters.model else data.model
    data_args = {**data.args, **split.args(classes, data.dataset.classes)}
    if split.method == "user":
        # The paper uses a tenth of LEAF's users; with few users, at least as many as a round needs.
        share = 1.0 if data.stand_in else max(0.1 * budget.share, 0.02)
        kept, users = data.subsample_users(budget.scale_client)
        if kept is not None:
            data_args["client_samples"] = kept
        data_args["dset_ratio"] = min(1.0, max(share, reduced.chosen / users))
        reduced = replace(reduced, chosen=min(reduced.chosen, users))
    elif budget.share < 1 and data.args["dataset"] != EMBEDDED:
        # K and N shrink alike, so that a client has as many samples as in the paper.
        shared = samples * reduced.clients // parameters.clients
        if budget.share < SMALL:
            shared = budget.scale_client(shared // reduced.clients) * reduced.clients
        # Some of each class, or a class has reduced samples than clients that need it.
        least = max(10, MIN_CLASS_SAMPLES * data_args.get("classes_per_client", 0)) * reduced.clients
        data_args["client_samples"] = min(max(shared, least), samples)
    if server is not None:
        data_args["server_dataset"] = server.args["dataset"]
        if "data_file" in server.args:
            data_args["server_file"] = server.args["data_file"]
        else:
            data_args["data_cache_dir"] = server.args["data_cache_dir"]
        server_samples = server.sizes[1]
    # The number of samples of the drawn users is not known before they are drawn.
    if budget.share < 1 and (split.method != "user" or data.stand_in):
        data_args["server_samples"] = budget.scale(server_samples, budget.minimum("server"))
    config: Config = {
        "common_args": {"training_type": "simulation", "random_seed": 0, "keep_features": False},
        "data_args": data_args,
        "model_args": {"model": model},
        "train_args": {
            "client_num_in_total": reduced.clients,
            "client_num_per_round": min(reduced.chosen, reduced.clients),
            "comm_round": reduced.rounds,
            "epochs": reduced.epochs,
            "batch_size": data.dataset.batch_size,
            "client_optimizer": "sgd",
            "learning_rate": data.rate if rate is None else rate,
            "momentum": 0.9,
        },
        "device_args": {"using_gpu": False},
        "comm_args": {"backend": "sp"},
        "mrtf_args": {"refine_steps": reduced.refine_steps},
    }
    if split.method == "user":
        del config["train_args"]["client_num_in_total"]
    if parameters.sigma:
        config["dp_args"] = {"sigma": parameters.sigma}
    return config


@dataclass(frozen=True)
class Request:
    """The request of the command line.

    Attributes:
        data_folder: the datasets and stand-ins.
        out: the output folder of all experiments.
        presets: the presets of MrTF, each shown.
        budget: the fraction of the paper's size.
        seeds: number of seeds, from 0 upwards.
        jobs: number of concurrent runs.
        only: the selected datasets; empty for all.
        panels: the titles of the selected panels; empty for all.
        panel_options: the values of `--panel` as typed.
        grid: whether all learning rates of the paper are tried.
        changes: `--set` of the federated runs' configurations.
        progress: shows the bar and the lines.
    """

    data_folder: DataFolder
    out: Path
    presets: Sequence[str] = ("paper",)
    budget: Budget = field(default_factory=Budget)
    seeds: int = 1
    jobs: int = 1
    only: Sequence[str] = ()
    panels: Sequence[str] = ()
    panel_options: Sequence[str] = ()
    grid: bool = False
    changes: Sequence[str] = ()
    progress: ComparisonProgress = field(default_factory=ComparisonProgress)

    def select(self, names: Sequence[str]) -> list[str]:
        """The selected ones of these datasets."""
        return [name for name in names if not self.only or name in self.only]

    def data(self, name: str) -> Data:
        """The data used for one of the paper's datasets."""
        return self.data_folder.data(name)


@dataclass(frozen=True)
class Number:
    """One measured number, in the unit of the paper.

    Attributes:
        what: its name; equal to that of the paper's number, if there is one.
        ours: the value, a mean over the seeds.
        variant: the preset, where several presets are compared with one number of the paper.
        digits: decimals; if negative, the number of significant digits.
    """

    what: str
    ours: float
    variant: str = ""
    digits: int = 1


@dataclass(frozen=True)
class ClaimCheck:
    """Whether a claim of the paper holds in our runs; None where they do not allow a conclusion."""

    claim: str
    holds: bool | None
    evidence: str
    variant: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment."""

    figure: Figure
    numbers: list[Number]
    checks: list[ClaimCheck]
    seconds: float
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """One figure or table.

    Attributes:
        name: its name on the command line.
        place: the figure or table, and the section.
        caption: one sentence.
        claim: the claim of the paper.
        datasets: the datasets it needs.
        parameters: all hyper-parameters, as lines of text.
        run: runs it.
        cost: the workloads at a budget, for an estimate of the time.
        refines: whether a preset of MrTF changes it.
        seeds: the default number of seeds.
        reduces: what a budget reduces, as text; None for what it reduces in federated runs.
        panels: the titles of the panels of federated runs, and the datasets of each, the clients' first.
    """

    name: str
    place: str
    caption: str
    claim: str
    datasets: tuple[str, ...]
    parameters: tuple[str, ...]
    run: Callable[[Request], Outcome]
    cost: Callable[[Budget], list[Workload]]
    refines: bool = True
    seeds: int = 1
    reduces: str | None = None
    panels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def required_datasets(self, request: Request) -> list[str]:
        """The datasets that the request needs."""
        if not self.panels:
            return request.select(self.datasets)
        chosen = [own for title, own in self.panels.items() if not request.panels or title in request.panels]
        return list(dict.fromkeys(name for own in chosen for name in own))

    def describe_budget(self, budget: Budget) -> str:
        """What a budget reduces, for the footer of a figure; empty for the full size."""
        if self.reduces is None or budget.share == 1:
            return budget.describe()
        return f"budget {budget.share:g} of the paper's {self.reduces}" if self.reduces else ""


@dataclass(frozen=True)
class Workload:
    """The numbers of samples that one network is trained on and predicts, on one dataset."""

    dataset: str
    model: str
    trained: float
    read: float


def format_numbers(experiment: str, numbers: Sequence[Number]) -> list[list[str]]:
    """Rows of name, variant, the paper's number, ours, the difference, and the place in the paper."""
    rows = []
    for number in numbers:
        paper = paper_number(experiment, number.what)
        precision = f".{number.digits}f" if number.digits >= 0 else f".{-number.digits}g"
        ours = f"{number.ours:{precision}}"
        theirs = "" if paper is None else f"{paper.value:g}"
        difference = "" if paper is None else f"{number.ours - paper.value:+{precision}}"
        place = "" if paper is None else paper.place
        rows.append([number.what, number.variant, theirs, ours, difference, place])
    return rows


NUMBERS_HEADER = ["what", "variant", "paper", "ours", "difference", "place in the paper"]

_ASCII = {"α": "alpha", "σ": "sigma", "→": "->"}


def parse_only(words: str | None, experiment: Experiment) -> tuple[str, ...]:
    """The datasets of `--only`; empty for all."""
    names = [word.strip().lower() for word in (words or "").split(",") if word.strip()]
    for name in names:
        if name not in experiment.datasets:
            known = suggest_name(name, list(experiment.datasets))
            what = "is no dataset of" if name in DATASETS else "is unknown and no dataset of"
            raise UserError(f"--only: {name!r} {what} the experiment {experiment.name}; {known}")
    return tuple(names)


def select_panels(options: Sequence[str], only: Sequence[str], experiment: Experiment) -> tuple[str, ...]:
    """The titles of the selected panels, in the paper's order; empty where nothing is selected.

    One value of `--panel`, such as `mnist,C=3`, selects the panels that have all its parts; several values add up.
    """
    if options and not experiment.panels:
        raise UserError(f"--panel selects federated runs, and the experiment {experiment.name} has none; leave it out")
    if not options and not (only and experiment.panels):
        return ()
    parts = {title: _parts(title.split(", ")) for title in experiment.panels}
    known = list(dict.fromkeys(part for own in parts.values() for part in own))
    wanted = [_parts(entry.split(",")) for entry in options]
    for word in (word for entry in wanted for word in entry if word not in known):
        raise UserError(
            f"--panel: no panel of the experiment {experiment.name} is named {word!r}; it has {', '.join(known)}"
        )
    chosen = tuple(
        title
        for title, datasets in experiment.panels.items()
        if (not only or datasets[0] in only)
        and (not options or any(set(entry) <= set(parts[title]) for entry in wanted))
    )
    if not chosen:
        together = " and ".join(f"--panel {entry}" for entry in options) + (
            f" with --only {','.join(only)}" * bool(only)
        )
        raise UserError(
            f"no panel of the experiment {experiment.name} matches {together}; its panels: {_titles(experiment)}"
        )
    return chosen


def to_ascii(part: str) -> str:
    """One part of a panel's title in ASCII.

    >>> to_ascii("C̄=3"), to_ascii("α=1.0"), to_ascii("SVHN→MNISTm")
    ('c=3', 'alpha=1', 'svhn->mnistm')
    """
    text = "".join(_ASCII.get(letter, letter) for letter in unicodedata.normalize("NFKD", part.strip()))
    name, equals, value = "".join(letter for letter in text if not unicodedata.combining(letter)).lower().partition("=")
    try:
        return f"{name.strip()}={float(value):g}" if equals else name
    except ValueError:
        return f"{name}={value}"


def _parts(words: Iterable[str]) -> list[str]:
    return [to_ascii(word) for word in words if word.strip()]


def _titles(experiment: Experiment) -> str:
    return "; ".join(",".join(_parts(title.split(", "))) for title in experiment.panels)
