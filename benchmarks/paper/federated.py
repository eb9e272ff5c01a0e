"""The paper's figures and tables of federated runs: panels in the paper's order, algorithms and claims."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from functools import partial

from mrtf_fedml.experiments.scores import AlgorithmScore

from .comparison import MRTF, Comparison, Panel, PanelResult, is_best
from .datasets import DATASETS
from .experiment import ClaimCheck, Experiment, Parameters, Split
from .figures import draw_bars, draw_curves, draw_stages, draw_table, stage_accuracies

_MEAN: Callable[[AlgorithmScore], float] = lambda row: row.mean.mean  # noqa: E731  three measures, by name
_END: Callable[[AlgorithmScore], float] = lambda row: row.last.mean  # noqa: E731
_FINAL: Callable[[AlgorithmScore], float] = lambda row: row.final.mean  # noqa: E731


def check_mrtf_best(results: Sequence[PanelResult], presets: Sequence[str], most: bool = False) -> list[ClaimCheck]:
    """MrTF is above every other algorithm: in every panel over all rounds and at the end, or in most at the end."""
    checks = []
    informative = _informative(results)
    for preset in presets:
        label = f"{MRTF}:{preset}"
        faster = sum(is_best(result, label, _baselines(result), _MEAN) for result in informative)
        better = sum(is_best(result, label, _baselines(result), _END) for result in informative)
        evidence = (
            f"best mean over rounds in {faster} of {len(informative)} panels, best in the last ten rounds in {better}"
            f"{_uninformative_note(results)}"
        )
        claim = "MrTF converges faster and ends higher than all others"
        holds = faster == better == len(informative)
        if most:
            claim, holds = "MrTF ends higher than all others in most panels", 2 * better > len(informative)
        checks.append(ClaimCheck(claim, _conclude(results, holds), evidence, preset))
    return checks


def check_mrtf_steadier(results: Sequence[PanelResult], presets: Sequence[str]) -> list[ClaimCheck]:
    """MrTF reaches Scaffold's best accuracy, and drops less from its best round to the end."""
    checks = []
    informative = _informative(results)
    for preset in presets:
        label = f"{MRTF}:{preset}"
        reached = sum(result.rows[label].best.mean >= result.rows["Scaffold"].best.mean for result in informative)
        steady = sum(_drop(result.rows[label]) <= _drop(result.rows["Scaffold"]) for result in informative)
        better = sum(is_best(result, label, _baselines(result), _END) for result in informative)
        evidence = (
            f"its best is not below Scaffold's in {reached} of {len(informative)} panels, its fall from the best round "
            f"to the last ten is not larger in {steady}, it is best in the last ten rounds in {better}"
            f"{_uninformative_note(results)}"
        )
        holds = _conclude(results, reached == steady == len(informative))
        checks.append(ClaimCheck("MrTF achieves Scaffold's best and is more stable", holds, evidence, preset))
    return checks


def check_mrtf_final(results: Sequence[PanelResult], presets: Sequence[str]) -> list[ClaimCheck]:
    """MrTF's final accuracy is the highest in every column of a table."""
    checks = []
    informative = _informative(results)
    for preset in presets:
        label, others = f"{MRTF}:{preset}", _baselines(results[0])
        highest = [result.panel.column for result in informative if is_best(result, label, others, _FINAL)]
        evidence = f"highest in {len(highest)} of {len(informative)} columns" + (
            f" ({'; '.join(highest)})" if highest else ""
        )
        holds = _conclude(results, len(highest) == len(informative))
        checks.append(
            ClaimCheck(
                f"MrTF ends above {' and '.join(others)}", holds, evidence + _uninformative_note(results), preset
            )
        )
    return checks


def check_noise(results: Sequence[PanelResult], presets: Sequence[str]) -> list[ClaimCheck]:
    """MrTF is above FedAvg, and loses less accuracy from the least noise to the most."""
    checks = check_mrtf_final(results, presets)
    if len(results) < 2:
        return checks
    for preset in presets:
        losses = {
            label: results[0].rows[label].final.mean - results[-1].rows[label].final.mean
            for label in ("FedAvg", f"{MRTF}:{preset}")
        }
        ours, theirs = losses[f"{MRTF}:{preset}"], losses["FedAvg"]
        evidence = f"FedAvg loses {100 * theirs:.1f} points from the least noise to the most, MrTF {100 * ours:.1f}"
        checks.append(
            ClaimCheck("MrTF loses less by noise than FedAvg", _conclude(results, ours <= theirs), evidence, preset)
        )
    return checks


def check_modules(results: Sequence[PanelResult], presets: Sequence[str]) -> list[ClaimCheck]:
    """Stabilised teachers are above averaged logits and parameters; all modules together are highest."""
    bars = ("PA", "AL", "ST", "ST+RD", "ST+RD+CLR")
    claims: list[tuple[str, Sequence[str], str, str]] = [
        ("ST", ("PA", "AL"), "ST alone is above PA and AL", "paper"),
        ("ST+RD+CLR", bars, "ST+RD+CLR is the highest bar", "paper"),
    ]
    claims += [
        (f"{MRTF}:{preset}", bars, "MrTF is above all five bars", preset) for preset in presets if preset != "paper"
    ]
    checks = []
    informative = _informative(results)
    for label, rivals, claim, preset in claims:
        above = sum(is_best(result, label, rivals, _FINAL) for result in informative)
        evidence = f"in {above} of {len(informative)} panels{_uninformative_note(results)}"
        checks.append(ClaimCheck(claim, _conclude(results, above == len(informative)), evidence, preset))
    return checks


def check_distillation(results: Sequence[PanelResult], presets: Sequence[str]) -> list[ClaimCheck]:
    """FedDF's distilled model is no better than its aggregated model, and unsteady from round to round."""
    worse, swings = 0, []
    informative = _informative(results)
    # Where nothing was learnt the numbers are shown too, without a conclusion.
    for result in informative or results:
        aggregated = [value for _, value in stage_accuracies(result.metrics["FedDF"], "acc_aggregated")]
        distilled = [value for _, value in stage_accuracies(result.metrics["FedDF"], "acc_refined")]
        worse += statistics.fmean(distilled) <= statistics.fmean(aggregated)
        drops = [before - after for before, after in itertools.pairwise(distilled)]
        swings.append(100 * max(drops, default=0.0))
    evidence = (
        f"the distilled model's mean over rounds is not above the aggregated model's in {worse} of {len(swings)} "
        f"panels; its largest fall from one round to the next is {max(swings):.1f} points{_uninformative_note(results)}"
    )
    return [
        ClaimCheck(
            "distilling does not improve the aggregated model", _conclude(results, worse == len(informative)), evidence
        )
    ]


def _baselines(result: PanelResult) -> list[str]:
    return [label for label in result.rows if not label.startswith(MRTF)]


def _drop(row: AlgorithmScore) -> float:
    return row.best.mean - row.last.mean


def _informative(results: Sequence[PanelResult]) -> list[PanelResult]:
    """The panels in which an algorithm has learnt something; the others allow no conclusion."""
    return [result for result in results if result.has_learnt]


def _uninformative_note(results: Sequence[PanelResult]) -> str:
    notes = len(results) - len(_informative(results))
    return f"; {notes} more {'has' if notes == 1 else 'have'} learnt nothing and cannot tell" if notes else ""


def _conclude(results: Sequence[PanelResult], holds: bool) -> bool | None:
    """`holds`, or None where nothing has been learnt in any panel: the budget is too small."""
    return holds if any(result.has_learnt for result in results) else None


_SPLITS = (Split("label", 5), Split("label", 3), Split("dirichlet", 1.0), Split("dirichlet", 0.1))
_SPLITS_OF_100 = (Split("label", 50), Split("label", 30), Split("dirichlet", 1.0), Split("dirichlet", 0.1))
_ALL = ("FedAvg", "FedProx", "FedMMD", "FedOpt", "Scaffold", "FedDF", MRTF)
_THREE = ("FedAvg", "FedDF", MRTF)
_TITLES = {name: dataset.title for name, dataset in DATASETS.items()}


def _panels_by_scale(
    dataset: str, row: str, split: Split, places: tuple[tuple[int, int], ...], rounds: int
) -> list[Panel]:
    """Panels by K and E, with 10 clients per round: 1% of K = 1000, 10% of K = 100."""
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
    check_mrtf_best,
)
_CIFAR100 = Comparison(
    tuple(
        Panel(split.title, title, Parameters("cifar100", split, rounds=500, epochs=20, model=model))
        for split in _SPLITS_OF_100
        for model, title in (("vgg8", "VGG8"), ("resnet8", "ResNet8"), ("resnet20", "ResNet20"))
    ),
    _ALL,
    draw_curves,
    partial(check_mrtf_best, most=True),
)
_OTHER = Comparison(
    tuple(
        Panel("", _TITLES[name], Parameters(name, Split("user"), clients=clients))
        for name, clients in (("femnist", 359), ("shakespeare", 112))
    ),
    _ALL,
    draw_curves,
    check_mrtf_steadier,
)
_PLACES = ((100, 2), (100, 10), (100, 50), (1000, 5), (1000, 50), (1000, 100))
_SCALES = Comparison(
    tuple(
        panel
        for name in ("svhn", "cifar10")
        for split in (Split("label", 5), Split("dirichlet", 1.0))
        for panel in _panels_by_scale(name, f"{_TITLES[name]}, {split.title}", split, _PLACES, 200)
    ),
    _THREE,
    draw_curves,
    check_mrtf_best,
)
_DRAWBACK = Comparison(
    tuple(
        panel
        for split in (Split("label", 5), Split("dirichlet", 1.0))
        for panel in _panels_by_scale(
            "svhn", f"SVHN, {split.title}", split, ((100, 2), (100, 10), (1000, 5), (1000, 50)), 200
        )
    ),
    ("FedDF",),
    draw_stages,
    check_distillation,
)
_ABLATION = Comparison(
    tuple(
        Panel(_TITLES[name], f"{split.title}, K=100, E=3", Parameters(name, split, rounds=50))
        for name in ("svhn", "cifar10")
        for split in _SPLITS
    ),
    ("PA", "AL", "ST", "ST+RD", "ST+RD+CLR"),
    draw_bars,
    check_modules,
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
    check_mrtf_final,
    seeds=5,
)
_PRIVACY = Comparison(
    tuple(
        Panel("", f"σ={text}", Parameters("cifar10", Split("dirichlet", 1.0), epochs=5, sigma=sigma))
        for text, sigma in (("0.0", 0.0), ("0.001", 0.001), ("0.01", 0.01), ("0.1", 0.1))
    ),
    ("FedAvg", MRTF),
    partial(draw_table, "dp"),
    check_noise,
)


def _experiment(name: str, place: str, caption: str, claim: str, comparison: Comparison, *notes: str) -> Experiment:
    parameters = comparison.panels[0].parameters
    datasets = [name for panel in comparison.panels for name in panel.datasets]
    lines = [
        f"algorithms: {', '.join(comparison.algorithms)}",
        *(f"{title}: {panel.parameters.title}" for title, panel in _distinct_panels(comparison).items()),
        "clients: " + _rates(datasets, network=not parameters.model),
        *([f"the paper averages {comparison.seeds} seeds: --seeds {comparison.seeds}"] if comparison.seeds > 1 else []),
        *notes,
    ]
    assert parameters.refine_steps == 500, "the paper's"
    return Experiment(
        name, place, caption, claim, tuple(dict.fromkeys(datasets)), tuple(lines), partial(comparison.run, name),
        comparison.cost, refines=name != "drawback",
        panels={panel.title: panel.datasets for panel in comparison.panels},
    )  # fmt: skip


def _distinct_panels(comparison: Comparison) -> dict[str, Panel]:
    """One panel per set of hyper-parameters, by the names of all panels that share them."""
    groups: dict[str, list[Panel]] = {}
    for panel in comparison.panels:
        groups.setdefault(panel.parameters.title, []).append(panel)
    return {_group_name(panels): panels[0] for panels in groups.values()}


def _group_name(panels: list[Panel]) -> str:
    rows, columns = dict.fromkeys(panel.row for panel in panels), dict.fromkeys(panel.column for panel in panels)
    return " x ".join(" | ".join(names) for names in (rows, columns) if any(names))


def _rates(datasets: list[str], network: bool) -> str:
    parts = []
    for name in dict.fromkeys(datasets):
        comparison = DATASETS[name]
        rates = " or ".join(f"{rate:g}" for rate in comparison.rates) + (
            f" (here {comparison.rate:g})" if len(comparison.rates) > 1 else ""
        )
        parts.append(
            f"{comparison.title} {f'{comparison.model}, ' * network}rate {rates}, batch {comparison.batch_size}"
        )
    return "; ".join(parts)


FEDERATED = (
    _experiment(
        "drawback", "Fig. drawback (Sect. 3.4)", "FedDF with many clients and few of them in a round",
        "distilling from AvgLogi does not improve the aggregated model and makes training unstable", _DRAWBACK,
        "the paper does not say C̄, α, T and which E: C̄=5, α=1.0, T=200 and these are taken",
    ),
    _experiment(
        "compare", "Fig. compare (Sect. 5.2, Part I)", "Seven algorithms on four datasets and four splits",
        "MrTF converges faster and performs better on all scenes", _COMPARE,
    ),
    _experiment(
        "compare-cifar100", "Fig. compare-cifar100 (Sect. 5.2, Part II)", "CIFAR100 with VGG8, ResNet8 and ResNet20",
        "MrTF is best in most cases, above all in the more heterogeneous ones", _CIFAR100,
        "the paper does not say the larger C̄: 50 of 100 is taken, as 5 of 10",
    ),
    _experiment(
        "compare-other", "Fig. compare-other (Sect. 5.2, Part III)", "LEAF's benchmarks, where a client is a user",
        "MrTF is effective here too, and steadier than Scaffold", _OTHER,
        "10% of the users take part; the paper does not say R, E and T: 10 clients per round, E=3, T=200 are taken",
        "the drawn users decide how much the server has: --set server_samples=1000 for fewer",
    ),
    _experiment(
        "scenes", "Fig. scenes (Sect. 5.2, Part IV)", "FedAvg, FedDF and MrTF by the number of clients and epochs",
        "MrTF surpasses FedAvg and FedDF on all scenes, and is steady with 1000 clients", _SCALES,
        "the paper does not say T: 200 is taken",
    ),
    _experiment(
        "ablation", "Fig. ablation (Sect. 5.3)", "The modules of MrTF, one after another",
        "AL is unsteady, ST alone is notably better, RD and CLR add to it", _ABLATION,
        "the paper does not say K and E of each column: K=100, E=3 are taken",
    ),
    _experiment(
        "cross-domain", "Table cross-domain (Sect. 5.4)", "The server's data come from another domain",
        "MrTF surpasses FedAvg and FedDF by a significant margin", _CROSS_DOMAIN,
        "the network is that of the clients' data",
    ),
    _experiment(
        "dp", "Table dp (Sect. 5.5)", "Noise on the clients' updates, CIFAR10 with VGG8",
        "with more noise FedAvg degrades seriously, while MrTF keeps better predictions", _PRIVACY,
        "split by Dirichlet, α=1.0; the paper does not say R: 10 clients per round are taken",
        "the paper states no bound of clipping: noise alone is added, which guarantees no privacy",
    ),
)  # fmt: skip
