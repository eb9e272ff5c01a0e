"""`mrtf data`: what a configuration's data are, before anything is trained on them."""

from __future__ import annotations

from pathlib import Path

from ..data import load
from ..data.statistics import OBSERVED, Statistics, statistics_of
from ..report.bubbles import draw_bubbles
from ..settings import DataSettings, RunSettings
from .configuration import configured


def describe(config_file: str, changes: list[str], plot: str | None) -> str:
    """The paper's table of statistics for the configuration's data and split; `plot` names a picture to write."""
    settings = RunSettings.from_config(configured(config_file, changes))
    dataset = load(settings)
    # The check that a run makes: more clients per round than there are would stop it.
    settings = settings.with_clients(dataset.client_num)
    statistics = statistics_of(dataset)
    text = _table(settings, statistics) + "\n\n" + _particulars(settings, statistics, dataset.input_shape)
    if plot is not None:
        title = f"{_name(settings.data)}: {statistics.clients} clients, {_split(settings)}"
        draw_bubbles(statistics, title, Path(plot))
        text += f"\n  picture          {plot}"
    return text


def _table(settings: RunSettings, statistics: Statistics) -> str:
    cells = {
        "dataset": _name(settings.data),
        "N": str(statistics.samples),
        "M": str(statistics.server_samples),
        "C": str(statistics.classes),
        "K": str(statistics.clients),
        "mean N_k": f"{statistics.samples_a_client.mean():.1f}",
        "mean C_k": f"{statistics.classes_a_client.mean():.1f}",
    }
    widths = [max(len(head), len(cell)) for head, cell in cells.items()]
    rows = (
        "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        for row in (cells, cells.values())
    )
    return "\n".join("  " + row for row in rows)


def _particulars(settings: RunSettings, statistics: Statistics, input_shape: tuple[int, ...]) -> str:
    least, most = statistics.samples_a_client.min(), statistics.samples_a_client.max()
    absent = [
        name for name, count in zip(statistics.class_names, statistics.counts.sum(axis=0), strict=True) if count == 0
    ]
    rows = [
        ("N, M", "training samples of all clients; samples of the server"),
        ("C, K", "classes; clients"),
        ("N_k, C_k", f"samples of a client; its classes with at least {OBSERVED} samples"),
        ("split", _split(settings)),
        ("samples per client", f"{least} to {most}"),
        ("a sample", " x ".join(str(size) for size in input_shape)),
        ("server's labels", "never shown to the server; they mark its answer where they are known"),
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
        "iid": "alike (IID)",
        "user": "by user",
    }
    return f"{how[data.partition_method]}{share}, seed {seed}"
