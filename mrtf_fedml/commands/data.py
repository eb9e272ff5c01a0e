"""`mrtf data`: describe the data and the split of a configuration without training."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config import DataSettings, RunSettings
from ..data import load
from ..data.statistics import MIN_OBSERVED, Statistics, compute_statistics
from ..report.partition_plot import draw_partition
from .configuration import load_configuration


def main(options: argparse.Namespace) -> int:
    """Print the description."""
    print(describe(options.cf, options.set, options.plot))
    return 0


def describe(config_file: str, changes: list[str], plot: str | None) -> str:
    """The paper's table of statistics for the configuration's data and split; `plot` names a picture to write."""
    settings = RunSettings.from_config(load_configuration(config_file, changes))
    dataset = load(settings)
    # The check of a run: more clients per round than clients is an error.
    settings = settings.with_client_count(dataset.client_num)
    statistics = compute_statistics(dataset)
    text = _table(settings, statistics) + "\n\n" + _details(settings, statistics, dataset.input_shape)
    if plot is not None:
        title = f"{_name(settings.data)}: {statistics.clients} clients, {_split(settings)}"
        draw_partition(statistics, title, Path(plot))
        text += f"\n  picture          {plot}"
    return text


def _table(settings: RunSettings, statistics: Statistics) -> str:
    cells = {
        "dataset": _name(settings.data),
        "N": str(statistics.samples),
        "M": str(statistics.server_samples),
        "C": str(statistics.classes),
        "K": str(statistics.clients),
        "mean N_k": f"{statistics.samples_per_client.mean():.1f}",
        "mean C_k": f"{statistics.classes_per_client.mean():.1f}",
    }
    widths = [max(len(head), len(cell)) for head, cell in cells.items()]
    rows = (
        "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        for row in (cells, cells.values())
    )
    return "\n".join("  " + row for row in rows)


def _details(settings: RunSettings, statistics: Statistics, input_shape: tuple[int, ...]) -> str:
    least, most = statistics.samples_per_client.min(), statistics.samples_per_client.max()
    absent = [
        name for name, count in zip(statistics.class_names, statistics.counts.sum(axis=0), strict=True) if count == 0
    ]
    rows = [
        ("N, M", "training samples of all clients; samples of the server"),
        ("C, K", "classes; clients"),
        ("N_k, C_k", f"samples of a client; its classes with at least {MIN_OBSERVED} samples"),
        ("split", _split(settings)),
        ("samples per client", f"{least} to {most}"),
        ("a sample", " x ".join(str(size) for size in input_shape)),
        ("server's labels", "never shown to the server; only used to score its predictions"),
    ]
    if absent:
        rows.append(("no client has", ", ".join(absent)))
    return "\n".join(f"  {word:<16} {value}" for word, value in rows)


def _name(data: DataSettings) -> str:
    name = data.title
    return name if data.server_dataset in (None, data.dataset) else f"{name} to {data.server_dataset}"


def _split(settings: RunSettings) -> str:
    data = settings.data
    if data.loader is not None:
        return "as the loader gives it"
    seed = settings.common.random_seed if data.partition_seed is None else data.partition_seed
    share = f", {data.dset_ratio:.0%} of the users" if data.dset_ratio < 1 else ""
    how = {
        "label": f"by label, {data.classes_per_client} classes per client",
        "dirichlet": f"by Dirichlet, alpha {data.partition_alpha:g}",
        "iid": "IID",
        "user": "by user",
    }
    return f"{how[data.partition_method]}{share}, seed {seed}"
