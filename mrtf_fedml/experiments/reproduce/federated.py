"""The paper's figures and tables of whole federated runs: panels in the paper's order, and the paper's algorithms."""

from __future__ import annotations

from functools import partial

from .comparison import MRTF, Comparison, Panel
from .datasets import DATASETS
from .judging import (
    distilling_does_not_help,
    modules_add_up,
    mrtf_ends_highest,
    mrtf_is_best,
    mrtf_is_steadier,
    noise_costs_mrtf_less,
)
from .panels import draw_bars, draw_curves, draw_stages, draw_table
from .parameters import Parameters, Split
from .scene import Scene

_SPLITS = (Split("label", 5), Split("label", 3), Split("dirichlet", 1.0), Split("dirichlet", 0.1))
_SPLITS_OF_100 = (Split("label", 50), Split("label", 30), Split("dirichlet", 1.0), Split("dirichlet", 0.1))
_ALL = ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF", MRTF)
_THREE = ("FedAvg", "FedDF", MRTF)
_TITLES = {name: dataset.title for name, dataset in DATASETS.items()}


def _many(dataset: str, row: str, split: Split, places: tuple[tuple[int, int], ...], rounds: int) -> list[Panel]:
    """Panels by K and E; with K = 1000 one client in a hundred takes part, with K = 100 one in ten."""
    return [
        Panel(row, f"K={clients}, E={epochs}", Parameters(dataset, split, clients, 10, rounds, epochs))
        for clients, epochs in places
    ]


_COMPARE = Comparison(
    tuple(
        Panel(_TITLES[name], split.title, Parameters(name, split, rounds=DATASETS[name].rounds))
        for name in ("mnist", "mnistm", "svhn", "cifar10")
        for split in _SPLITS
    ),
    _ALL,
    draw_curves,
    mrtf_is_best,
)
_CIFAR100 = Comparison(
    tuple(
        Panel(split.title, title, Parameters("cifar100", split, rounds=500, epochs=20, model=model))
        for split in _SPLITS_OF_100
        for model, title in (("vgg8", "VGG8"), ("resnet8", "ResNet8"), ("resnet20", "ResNet20"))
    ),
    _ALL,
    draw_curves,
    partial(mrtf_is_best, most=True),
)
_OTHER = Comparison(
    tuple(
        Panel("", _TITLES[name], Parameters(name, Split("user"), clients=clients))
        for name, clients in (("femnist", 359), ("shakespeare", 112))
    ),
    _ALL,
    draw_curves,
    mrtf_is_steadier,
)
_PLACES = ((100, 2), (100, 10), (100, 50), (1000, 5), (1000, 50), (1000, 100))
_SCENES = Comparison(
    tuple(
        panel
        for name in ("svhn", "cifar10")
        for split in (Split("label", 5), Split("dirichlet", 1.0))
        for panel in _many(name, f"{_TITLES[name]}, {split.title}", split, _PLACES, 200)
    ),
    _THREE,
    draw_curves,
    mrtf_is_best,
)
_DRAWBACK = Comparison(
    tuple(
        panel
        for split in (Split("label", 5), Split("dirichlet", 1.0))
        for panel in _many("svhn", f"SVHN, {split.title}", split, ((100, 2), (100, 10), (1000, 5), (1000, 50)), 200)
    ),
    ("FedDF",),
    draw_stages,
    distilling_does_not_help,
)
_ABLATION = Comparison(
    tuple(
        Panel(_TITLES[name], f"{split.title}, K=100, E=3", Parameters(name, split, rounds=50))
        for name in ("svhn", "cifar10")
        for split in _SPLITS
    ),
    ("PA", "AL", "ST", "ST+RD", "ST+RD+CLR"),
    draw_bars,
    modules_add_up,
    ablation=True,
)
_CROSS_DOMAIN = Comparison(
    tuple(
        Panel(
            "",
            f"{_TITLES[clients]}→{_TITLES[server]}, {split.title}",
            Parameters(clients, split, epochs=5, server_dataset=server),
        )
        for clients, server in (("svhn", "mnistm"), ("mnistm", "svhn"))
        for split in (Split("dirichlet", 1.0), Split("dirichlet", 0.1))
    ),
    _THREE,
    partial(draw_table, "cross-domain"),
    mrtf_ends_highest,
    seeds=5,
)
_PRIVACY = Comparison(
    tuple(
        Panel("", f"σ={text}", Parameters("cifar10", Split("dirichlet", 1.0), epochs=5, sigma=sigma))
        for text, sigma in (("0.0", 0.0), ("0.001", 0.001), ("0.01", 0.01), ("0.1", 0.1))
    ),
    ("FedAvg", MRTF),
    partial(draw_table, "dp"),
    noise_costs_mrtf_less,
)


def _scene(name: str, place: str, shows: str, claim: str, own: Comparison, *silent: str) -> Scene:
    parameters = own.panels[0].parameters
    datasets = [name for panel in own.panels for name in panel.datasets]
    lines = [
        f"algorithms: {', '.join(own.algorithms)}",
        *(f"{title}: {panel.parameters.title}" for title, panel in _different(own).items()),
        "clients: " + _rates(datasets, network=not parameters.model),
        *([f"the paper averages {own.seeds} seeds: --seeds {own.seeds}"] if own.seeds > 1 else []),
        *silent,
    ]
    assert parameters.refine_steps == 500, "the paper's"
    return Scene(
        name, place, shows, claim, tuple(dict.fromkeys(datasets)), tuple(lines), partial(own.play, name), own.cost,
        refines=name != "drawback", panels={panel.title: panel.datasets for panel in own.panels},
    )  # fmt: skip


def _different(own: Comparison) -> dict[str, Panel]:
    """The panels whose numbers are not those of the one before; a name for all that share them."""
    groups: dict[str, list[Panel]] = {}
    for panel in own.panels:
        groups.setdefault(panel.parameters.title, []).append(panel)
    return {_group(panels): panels[0] for panels in groups.values()}


def _group(panels: list[Panel]) -> str:
    rows, columns = dict.fromkeys(panel.row for panel in panels), dict.fromkeys(panel.column for panel in panels)
    return " x ".join(" | ".join(names) for names in (rows, columns) if any(names))


def _rates(datasets: list[str], network: bool) -> str:
    parts = []
    for name in dict.fromkeys(datasets):
        own = DATASETS[name]
        rates = " or ".join(f"{rate:g}" for rate in own.rates) + (f" (here {own.rate:g})" if len(own.rates) > 1 else "")
        parts.append(f"{own.title} {f'{own.model}, ' * network}rate {rates}, batch {own.batch_size}")
    return "; ".join(parts)


FEDERATED = (
    _scene(
        "drawback", "Fig. drawback (Sect. 3.4)", "FedDF with many clients and few of them in a round",
        "distilling from AvgLogi does not improve the aggregated model and makes training unstable", _DRAWBACK,
        "the paper does not say C̄, α, T and which E: C̄=5, α=1.0, T=200 and these are taken",
    ),
    _scene(
        "compare", "Fig. compare (Sect. 5.2, Part I)", "Seven algorithms on four datasets and four splits",
        "MrTF converges faster and performs better on all scenes", _COMPARE,
    ),
    _scene(
        "compare-cifar100", "Fig. compare-cifar100 (Sect. 5.2, Part II)", "CIFAR100 with VGG8, ResNet8 and ResNet20",
        "MrTF is best in most cases, above all in the more heterogeneous ones", _CIFAR100,
        "the paper does not say the larger C̄: 50 of 100 is taken, as 5 of 10",
    ),
    _scene(
        "compare-other", "Fig. compare-other (Sect. 5.2, Part III)", "LEAF's benchmarks, where a client is a user",
        "MrTF is effective here too, and steadier than Scaffold", _OTHER,
        "10% of the users take part; the paper does not say R, E and T: 10 clients per round, E=3, T=200 are taken",
        "the drawn users decide how much the server has: --set server_samples=1000 for fewer",
    ),
    _scene(
        "scenes", "Fig. scenes (Sect. 5.2, Part IV)", "FedAvg, FedDF and MrTF by the number of clients and epochs",
        "MrTF surpasses FedAvg and FedDF on all scenes, and is steady with 1000 clients", _SCENES,
        "the paper does not say T: 200 is taken",
    ),
    _scene(
        "ablation", "Fig. ablation (Sect. 5.3)", "The modules of MrTF, one after another",
        "AL is unsteady, ST alone is notably better, RD and CLR add to it", _ABLATION,
        "the paper does not say K and E of each column: K=100, E=3 are taken",
    ),
    _scene(
        "cross-domain", "Table cross-domain (Sect. 5.4)", "The server's data come from another domain",
        "MrTF surpasses FedAvg and FedDF by a significant margin", _CROSS_DOMAIN,
        "the network is that of the clients' data",
    ),
    _scene(
        "dp", "Table dp (Sect. 5.5)", "Noise on the clients' updates, CIFAR10 with VGG8",
        "with more noise FedAvg degrades seriously, while MrTF keeps better predictions", _PRIVACY,
        "split by Dirichlet, α=1.0; the paper does not say R: 10 clients per round are taken",
        "the paper states no bound of clipping: noise alone is added, which guarantees no privacy",
    ),
)  # fmt: skip
