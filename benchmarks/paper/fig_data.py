"""Fig. data and Table data: how many samples of which class each client has. Nothing is trained."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from mrtf_fedml.config import RunSettings
from mrtf_fedml.data.loader import from_source, load
from mrtf_fedml.data.statistics import Statistics, compute_statistics
from mrtf_fedml.report.partition_plot import draw_strip, label_classes

from .datasets import DATASETS, EMBEDDED, MIN_EMBEDDED_SAMPLES, Data
from .experiment import Budget, ClaimCheck, Experiment, Number, Outcome, Request, Split
from .figures import WIDTH, new_figure
from .paper_numbers import STATISTICS_COLUMNS, paper_number

_FEW = 5
_MANY = 100
_SPLITS = (Split("label", 5), Split("dirichlet", 1.0))


def _statistics(data: Data, split: Split, clients: int) -> Statistics:
    """Of the whole dataset, whatever the budget: counting is cheap."""
    by_user = split.method == "user"
    args: dict[str, Any] = {**data.args, **split.args(data.sizes[2], data.dataset.classes)}
    config = {
        "data_args": args | ({"dset_ratio": 0.1} if by_user else {}),
        "train_args": {"client_num_in_total": clients, "client_num_per_round": 1},
    }
    settings = RunSettings.from_config(config)
    return compute_statistics(load(settings) if by_user else from_source(data.source, settings))


def _run_figure(request: Request) -> Outcome:
    began = time.perf_counter()
    names = request.select(("mnist", "svhn"))
    figure, (panels,) = new_figure(1, 2 * len(names), height=2.7, width=max(4.0, WIDTH / 2 * len(names)))
    numbers: list[Number] = []
    uneven: dict[str, list[float]] = {split.method: [] for split in _SPLITS}
    exact = []
    for place, (name, split) in enumerate((name, split) for name in names for split in _SPLITS):
        data, axes = request.data(name), panels[place]
        statistics = _statistics(data, split, _FEW)
        draw_strip(axes, statistics.counts, int(statistics.counts.max()), 0.21)
        axes.set_xlim(-0.7, _FEW - 0.3)
        axes.set_xticks(range(_FEW), [str(client + 1) for client in range(_FEW)])
        label_classes(axes, statistics.class_names, 0.2)
        axes.set_ylabel("Class" if place == 0 else "")
        axes.set_xlabel("Client")
        stand_in = "\n(stand-in)" if data.stand_in else ""
        axes.set_title(f"{data.dataset.title}, {split.title}{stand_in}")
        sizes, what = statistics.samples_per_client, f"{data.dataset.title}, {split.title}"
        numbers.append(Number(f"{what}, samples of the smallest client", float(sizes.min()), digits=0))
        numbers.append(Number(f"{what}, samples of the largest client", float(sizes.max()), digits=0))
        present = (statistics.counts > 0).sum(axis=1)
        numbers.append(Number(f"{what}, mean number of classes of a client", float(present.mean())))
        if split.method == "label":
            wanted = split.args(data.sizes[2], data.dataset.classes)["classes_per_client"]
            exact.append(bool((present == wanted).all()))
        uneven[split.method].append(_unevenness(statistics))
    by_label, by_dirichlet = max(uneven["label"]), min(uneven["dirichlet"])
    evidence = (
        f"the numbers of a client's classes deviate from their mean by {by_label:.0%} by label and by "
        f"{by_dirichlet:.0%} by Dirichlet"
    )
    checks = [
        ClaimCheck("split by label, a client misses classes", all(exact), "every client has exactly C̄ classes"),
        ClaimCheck(
            "by label a client's classes are almost balanced, by Dirichlet not", by_dirichlet > by_label, evidence
        ),
    ]
    return Outcome(figure, numbers, checks, time.perf_counter() - began, ["The whole dataset, whatever the budget"])


def _unevenness(statistics: Statistics) -> float:
    """The deviation of the samples of a client's classes, over their mean; the mean of all clients."""
    own = [counts[counts > 0] for counts in statistics.counts]
    return float(np.mean([counts.std() / counts.mean() for counts in own]))


def _run_table(request: Request) -> Outcome:
    began = time.perf_counter()
    numbers: list[Number] = []
    cells: list[list[str]] = []
    request.progress.start(len(DATASETS), 0, "dataset", "table-data")
    for done, name in enumerate(request.select(tuple(DATASETS)), start=1):
        data = request.data(name)
        own = _table_row(data)
        title = data.dataset.title
        numbers += [replace(number, what=f"{title}, {number.what}") for number in own]
        cells.append([title + ("\n(stand-in)" if data.stand_in else "")])
        values = {number.what: number for number in own}
        for column in STATISTICS_COLUMNS:
            paper, ours = paper_number("table-data", f"{title}, {column}"), values.get(column)
            number = "—" if ours is None else f"{ours.ours:.{ours.digits}f}"
            cells[-1].append(f"{number}\n({paper.value:g})" if paper else number)
        # One dataset at a time in memory.
        data.__dict__.pop("source", None)
        request.progress.show(lambda done=done: done)  # type: ignore[misc]
    request.progress.close()
    from matplotlib.transforms import Bbox

    figure, ((axes,),) = new_figure(1, 1, height=0.5 * len(cells) + 0.4)
    axes.set_axis_off()
    head = ["", "N", "M", "C", "K", "mean $N_k$", "mean $C_k$\nby label", "mean $C_k$\nby Dirichlet"]
    table = axes.table(cellText=cells, colLabels=head, cellLoc="center", bbox=Bbox.unit())
    table.auto_set_font_size(False)
    table.set_fontsize(7.5)
    names = request.select(tuple(DATASETS))
    papers = [DATASETS[name].title for name in names if not request.data(name).stand_in]
    return Outcome(figure, numbers, _check_table(numbers, papers), time.perf_counter() - began, _TABLE_NOTES)


_TABLE_NOTES = [
    "Ours, and the paper's in brackets; the whole datasets, whatever the budget",
    "Where a client is a user there is one C_k, given for both splits; the users are drawn anew (10%)",
]


def _table_row(data: Data) -> list[Number]:
    if data.by_user:
        both = [_statistics(data, Split("user"), 1)] * 2
    else:
        clients = _MANY if data.args["dataset"] != EMBEDDED else data.sizes[0] // MIN_EMBEDDED_SAMPLES
        share = 30 if data.dataset.classes == 100 else 3
        splits = (Split("label", share * data.dataset.classes / (100 if share == 30 else 10)), Split("dirichlet", 0.1))
        both = [_statistics(data, split, clients) for split in splits]
    first = both[0]
    values = (
        *(first.samples, first.server_samples, first.classes, first.clients, float(np.mean(first.samples_per_client))),
        *(float(np.mean(one.classes_per_client)) for one in both),
    )
    digits = (0, 0, 0, 0, 0, 1, 1)
    return [Number(c, float(v), digits=d) for c, v, d in zip(STATISTICS_COLUMNS, values, digits, strict=True)]


def _check_table(numbers: list[Number], own: list[str]) -> list[ClaimCheck]:
    """Within a tenth of the paper's: it prints rounded numbers, and a draw of users is another draw.

    Only `own`, the datasets that are the paper's, are judged.
    """
    papers = [(number, paper_number("table-data", number.what)) for number in numbers]
    compared = [(number, paper) for number, paper in papers if paper and number.what.partition(",")[0] in own]
    far = [number.what for number, paper in compared if abs(number.ours - paper.value) > 0.1 * paper.value]
    evidence = f"{len(compared) - len(far)} of {len(compared)} numbers within a tenth of the paper's"
    if far:
        evidence += f"; not {'; '.join(far)}"
    return [ClaimCheck("the statistics are the paper's", not far if compared else None, evidence)]


def _no_cost(budget: Budget) -> list[Any]:
    return []


DATA = Experiment(
    "data", "Fig. data (Sect. 3.3)", "How five clients share MNIST and SVHN, by label and by Dirichlet",
    "the splits cover imbalance, skewed amounts and missing classes", ("mnist", "svhn"),
    ("K=5; C̄=5 by label, α=1.0 by Dirichlet",), _run_figure, _no_cost, refines=False, reduces="",
)  # fmt: skip
TABLE_DATA = Experiment(
    "table-data", "Table data (Sect. 5)", "The statistics of the datasets",
    "N, M, C, K, samples and observed classes (at least 5 samples) of a client", tuple(DATASETS),
    ("K=100, or the users; C̄=3 by label (30 of CIFAR100's 100), α=0.1 by Dirichlet; 10% of LEAF's users",),
    _run_table, _no_cost, refines=False, reduces="",
)  # fmt: skip
