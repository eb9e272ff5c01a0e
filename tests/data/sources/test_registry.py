"""The registry of sources, and the digits."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits as sklearn_digits

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data.sources import SOURCES, load_source
from mrtf_fedml.errors import UserError


def test_digits_contain_each_scikit_learn_digit_once() -> None:
    source = load_source(DataSettings(dataset="digits"))
    assert source.x_train.shape == (1198, 8, 8)
    assert source.x_test.shape == (599, 8, 8)
    assert source.class_names == [str(digit) for digit in range(10)]
    assert source.ids == [str(index) for index in range(599)]
    assert source.y_test is not None
    original = sklearn_digits()
    ours = np.concatenate([source.x_train, source.x_test]).astype(np.float64) * 16 / 255
    pairs = np.c_[np.rint(ours).reshape(len(ours), -1), np.concatenate([source.y_train, source.y_test])]
    theirs = np.c_[original.images.reshape(len(ours), -1), original.target]
    assert sorted(map(tuple, pairs.tolist())) == sorted(map(tuple, theirs.tolist()))


def test_digits_split_is_independent_of_seeds_and_global_state() -> None:
    np.random.seed(1)
    torch.manual_seed(1)
    before = np.random.get_state()[1].copy()
    first = load_source(DataSettings(dataset="digits", partition_seed=1))
    assert (np.random.get_state()[1] == before).all()
    np.random.seed(2)
    second = load_source(DataSettings(dataset="digits", partition_seed=2))
    assert (first.x_test == second.x_test).all()


def test_digits_split_has_every_class_on_both_sides() -> None:
    source = load_source(DataSettings(dataset="digits"))
    assert np.bincount(source.y_train).min() > 90
    assert source.y_test is not None
    assert np.bincount(source.y_test).min() > 40


def test_unknown_dataset_error_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'digit'.* did you mean 'digits'\?"):
        load_source(DataSettings(dataset="digit"))
    with pytest.raises(UserError, match="known: " + ", ".join(sorted(SOURCES))):
        load_source(DataSettings(dataset="zzzz"))


def test_class_without_training_samples_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "gap.npz"
    names = np.array(["ant", "bee", "cow"])
    np.savez(file, x_train=np.zeros((4, 2)), y_train=[0, 2, 2, 0], x_test=np.zeros((1, 2)), class_names=names)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        source = load_source(DataSettings(dataset="npz", data_file=str(file)))
    assert source.class_num == 3
    assert caplog.messages == ["gap: no training sample of class bee; no client can learn it"]


def test_source_repr_has_no_labels() -> None:
    assert "y_t" not in repr(load_source(DataSettings(dataset="digits")))
