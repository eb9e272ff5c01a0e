"""Cells of the input space in which server and clients count their samples."""

from __future__ import annotations

import pytest
import torch

from mrtf_fedml.algorithms.input_cells import MIN_SAMPLES, InputCells


def fitted(inputs: torch.Tensor) -> InputCells:
    cells = InputCells.fit(inputs, classes=3)
    assert cells is not None
    return cells


@pytest.mark.parametrize("shape", [(3,), (1, 9, 9)])
def test_cells_hold_several_of_the_servers_samples_and_radii_equal_numbers(shape: tuple[int, ...]) -> None:
    inputs = torch.randn(200, *shape, generator=torch.Generator().manual_seed(0))
    cells = fitted(inputs)
    assigned, bins = cells.assign(inputs)
    divisions, size = cells.shape
    assert assigned.shape == (200, divisions)
    for column in assigned.T[:-1]:
        counts = torch.bincount(column, minlength=size)
        assert counts.sum() == 200
        assert counts.max() < 100, "the samples are divided"
    assert torch.bincount(assigned[:, -1], minlength=size)[:10].tolist() == [20] * 10
    for column in bins.T:
        assert torch.bincount(column).tolist() == [50] * 4


@pytest.mark.parametrize(
    ("samples", "shape", "classes", "dimensions", "features"),
    [
        (200, (40,), 3, 40, 40),
        (200, (100,), 3, 64, 100),
        (400, (150,), 3, 100, 150),
        (2000, (300,), 3, 256, 300),
        (400, (1, 15, 15), 3, 64, 64),
        (400, (2100,), 3, 64, 64),
        (400, (1500,), 50, 100, 100),
    ],
    ids=["narrow", "wide", "more samples", "many samples", "image", "very wide", "many classes"],
)
def test_columns_of_tables_are_counted_and_distances_projected(
    samples: int, shape: tuple[int, ...], classes: int, dimensions: int, features: int
) -> None:
    inputs = torch.randn(samples, *shape, generator=torch.Generator().manual_seed(5))
    cells = InputCells.fit(inputs, classes)
    assert cells is not None
    assert (len(cells.mean), len(cells.quartiles)) == (dimensions, features)
    by_cell, by_feature = cells.count([(inputs, torch.zeros(samples, dtype=torch.int64))], classes)
    assert by_cell.shape == (cells.shape[0], classes, cells.shape[1])
    assert by_feature.shape == (features, classes, 4)
    if features == shape[0]:
        column = inputs[:, -1]
        assert by_feature[-1, 0, 0] == (column <= column.double().quantile(0.25)).sum()


def test_no_centre_is_a_single_sample() -> None:
    inputs = torch.cat([torch.randn(60, 4, generator=torch.Generator().manual_seed(1)), torch.full((1, 4), 50.0)])
    cells = fitted(inputs)
    point = (inputs[-1] - cells.mean) / cells.scale
    assert (cells.centres - point / point.norm()).norm(dim=2).min() > 0.01


def test_count_is_by_division_class_and_cell_and_skips_labels_that_are_no_class() -> None:
    inputs = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    cells, labels = fitted(inputs), torch.arange(50) % 3
    labels[0] = 7
    counts, features = cells.count([(inputs[:20], labels[:20]), (inputs[20:], labels[20:])], classes=3)
    assigned, bins = cells.assign(inputs)
    for division, (label, cell) in enumerate([(0, 1), (1, 0), (2, 2)]):
        expected = int(((labels == label) & (assigned[:, division] == cell)).sum())
        assert counts[division, label, cell] == expected
    assert counts.sum(dim=(1, 2)).tolist() == [49] * cells.shape[0]
    assert features[3, 2, 1] == ((labels == 2) & (bins[:, 3] == 1)).sum()
    assert features.sum(dim=(1, 2)).tolist() == [49] * 4


def test_cells_survive_the_payload_and_assign_equally() -> None:
    inputs = torch.randn(100, 80, generator=torch.Generator().manual_seed(3))
    cells = fitted(inputs)
    received = InputCells.from_payload({**cells.to_payload("a/"), "other": 1}, "a/")
    assert received is not None
    for one, other in zip(received.assign(inputs), cells.assign(inputs), strict=True):
        assert torch.equal(one, other)
    assert InputCells.from_payload({"other": 1}, "a/") is None
    assert torch.equal(fitted(inputs).centres, cells.centres), "the same samples give the same cells"


def test_too_few_samples_and_samples_of_indices_have_no_cells() -> None:
    assert InputCells.fit(torch.randn(MIN_SAMPLES - 1, 3), classes=3) is None
    assert InputCells.fit(torch.zeros(100, 5, dtype=torch.int64), classes=3) is None


def test_equal_samples_are_one_cell() -> None:
    for assigned in fitted(torch.ones(30, 3)).assign(torch.ones(30, 3)):
        assert len(assigned.unique(dim=0)) == 1
