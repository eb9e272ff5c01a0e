"""The paper's table of dataset statistics and its plot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import from_fedml, load
from mrtf_fedml.data.statistics import Statistics, compute_statistics
from mrtf_fedml.errors import UserError
from mrtf_fedml.report.partition_plot import draw_partition


def test_statistics_of_the_digits() -> None:
    statistics = compute_statistics(load(RunSettings()))
    assert (statistics.samples, statistics.server_samples) == (1198, 599)
    assert (statistics.clients, statistics.classes) == (20, 10)
    assert statistics.samples_per_client.mean() == pytest.approx(59.9)
    assert set(statistics.classes_per_client) == {3}


def test_class_is_observed_from_five_samples() -> None:
    counts = np.array([[5, 4, 0], [100, 5, 5]])
    statistics = Statistics(counts, 7, ["a", "b", "c"])
    assert statistics.classes_per_client.tolist() == [1, 3]
    assert statistics.samples_per_client.tolist() == [9, 110]


def test_statistics_of_any_loader() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(7, 2), torch.tensor([0, 0, 2, 2, 2, 1, 0])), batch_size=3)
    dataset = from_fedml((7, 7, None, loader, {0: 7}, {0: loader}, {0: None}, 4))
    assert compute_statistics(dataset).counts.tolist() == [[3, 1, 3, 0]]


@pytest.mark.parametrize(("clients", "classes"), [(5, 10), (100, 10), (260, 12)])
def test_bubbles_with_more_samples_are_darker(tmp_path: Path, clients: int, classes: int) -> None:
    counts = np.zeros((clients, classes), dtype=np.int64)
    counts[0, 0], counts[0, classes - 1] = 1000, 10
    names = [f"class ${number}" for number in range(classes)]
    file = tmp_path / "split.png"
    draw_partition(Statistics(counts, 5, names), "a split", file)
    pixels = np.asarray(Image.open(file).convert("RGB")).astype(int)
    # Away from the colour bar, blue is where bubbles are: a large dark one at the top, a small light one below.
    page = pixels[:, : pixels.shape[1] // 2]
    blue = page[..., 2] - page[..., 0] > 25
    rows = np.flatnonzero(blue.any(axis=1))
    middle = (rows.min() + rows.max()) // 2
    above, below = blue[:middle], blue[middle:]
    assert above.sum() > 3 * below.sum() > 0
    assert page[:middle][above].sum(axis=1).min() < page[middle:][below].sum(axis=1).min()


def test_unwritable_plot_raises(tmp_path: Path) -> None:
    statistics = Statistics(np.ones((2, 2), dtype=np.int64), 1, ["a", "b"])
    with pytest.raises(UserError, match=r"cannot be written .*--plot"):
        draw_partition(statistics, "", tmp_path / "no" / "split.png")
    with pytest.raises(UserError, match=r"cannot be written .*xyz"):
        draw_partition(statistics, "", tmp_path / "split.xyz")
