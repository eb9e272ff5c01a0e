"""Samples that are labelled later are compared with statistics of the run's samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor

from mrtf_fedml.data.preprocessing import Standardizer
from mrtf_fedml.diagnostics.reference import ReferenceStatistics

CLASSES = ["a", "b", "c"]


def wine(seed: int) -> tuple[Tensor, Tensor, Standardizer]:
    """Standardised rows in random order."""
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    raw = torch.tensor(x[order]).float()
    standardizer = Standardizer.fit([raw])
    return standardizer(raw), torch.tensor(y[order]), standardizer


@pytest.mark.parametrize("size", [1, 10, 89])
def test_samples_of_the_same_kind_give_no_warning(size: int) -> None:
    for seed in range(10):
        x, y, _ = wine(seed)
        reference = ReferenceStatistics.fit(x[:89], y[:89], 3)
        assert reference is not None
        assert reference.find_differences(x[89 : 89 + size], y[89 : 89 + size], CLASSES) == []


@pytest.mark.parametrize("size", [1, 10, 89])
def test_feature_in_other_units_is_named_with_values_in_its_own_units(size: int) -> None:
    x, y, standardizer = wine(0)
    reference = ReferenceStatistics.fit(x[:89], y[:89], 3)
    assert reference is not None
    raw = x[89 : 89 + size].double() * standardizer.deviation + standardizer.mean
    raw[:, 2] = raw[:, 2] * 9 / 5 + 32
    names = [f"f{index}" for index in range(13)]
    found = reference.find_differences(standardizer(raw), y[89 : 89 + size], CLASSES, names, standardizer)
    assert len(found) == 1
    assert f"'f2' (mean {raw[:, 2].mean():.4g}" in found[0]


def test_inverted_images_and_a_collapse_to_one_class_are_found() -> None:
    digits = load_digits()
    x, y = torch.tensor(digits.images[:, None]).float() / 16, torch.tensor(digits.target)
    reference = ReferenceStatistics.fit(x[:900], y[:900], 10)
    assert reference is not None
    names = [str(index) for index in range(10)]
    assert reference.find_differences(x[900:], y[900:], names) == []
    found = reference.find_differences(1 - x[900:], torch.full((len(x) - 900,), 7), names)
    assert "are unlike those of the run" in found[0]
    assert "labelled '7'" in found[1]


def test_statistics_survive_a_file_and_hold_no_sample() -> None:
    x, y, _ = wine(0)
    reference = ReferenceStatistics.fit(x, y, 3)
    assert reference is not None
    tensors = reference.to_tensors()
    again = ReferenceStatistics.from_tensors(tensors)
    shifted = x + 9
    assert again.find_differences(shifted, y, CLASSES) == reference.find_differences(shifted, y, CLASSES) != []
    rows = {tuple(row.tolist()) for row in x.double()}
    assert not any(tuple(row.tolist()) in rows for tensor in tensors.values() if tensor.ndim == 2 for row in tensor)


def test_few_samples_and_token_indices_have_no_statistics() -> None:
    x, y, _ = wine(0)
    assert ReferenceStatistics.fit(x[:20], y[:20], 3) is None
    assert ReferenceStatistics.fit(x.long(), y, 3) is None
