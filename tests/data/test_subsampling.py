"""Subsets of the clients' samples and of the users."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.config import (
    CommonSettings,
    DataSettings,
    RunSettings,
    TrainSettings,
)
from mrtf_fedml.data import Source, TransductiveDataset, Users, load
from mrtf_fedml.data.subsampling import select_users, subsample_clients
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import letters, write_femnist, write_leaf


def source(train: list[int], test: list[int]) -> Source:
    """Samples whose value is their place, made by these users."""
    names = [f"user {number}" for number in range(max(train + test) + 1)]
    return Source(
        name="diaries",
        x_train=np.arange(len(train), dtype=np.float32)[:, None],
        y_train=np.arange(len(train)) % 2,
        x_test=np.arange(len(test), dtype=np.float32)[:, None],
        y_test=np.arange(len(test)) % 2,
        class_names=["a", "b"],
        ids=[f"id {number}" for number in range(len(test))],
        users=Users(names, np.array(train), np.array(test)),
    )


def settings(**keys: Any) -> DataSettings:
    return DataSettings(partition_method="user", **keys)


def femnist(folder: Path, seed: int = 0, **keys: Any) -> TransductiveDataset:
    data = settings(dataset="femnist", data_cache_dir=str(folder), **keys)
    return load(RunSettings(common=CommonSettings(random_seed=seed), data=data, train=TrainSettings(batch_size=4)))


def test_server_set_is_union_of_chosen_users_test_samples() -> None:
    given = source([0, 1, 2, 3] * 3, [3, 2, 1, 0, 3])
    kept = select_users(given, settings(dset_ratio=0.5), seed=0)
    assert kept.users is not None
    chosen = {given.users.names.index(name) for name in kept.users.names}  # type: ignore[union-attr]
    assert len(chosen) == 2
    assert {int(x) % 4 for x in kept.x_train[:, 0]} == chosen
    assert {[3, 2, 1, 0, 3][int(x)] for x in kept.x_test[:, 0]} == chosen
    assert kept.ids == [f"id {int(x)}" for x in kept.x_test[:, 0]]
    assert kept.y_test is not None
    assert kept.y_test.tolist() == [int(x) % 2 for x in kept.x_test[:, 0]]


def test_number_of_chosen_users_is_rounded_down() -> None:
    for users, clients in ((3597, 359), (1129, 112), (5, 1)):
        kept = select_users(source(list(range(users)), list(range(users))), settings(dset_ratio=0.1), seed=0)
        assert kept.users is not None
        assert len(kept.users.names) == clients


def test_chosen_users_depend_on_the_seed() -> None:
    given = source(list(range(100)), list(range(100)))

    def names(seed: int) -> list[str]:
        users = select_users(given, settings(dset_ratio=0.2), seed).users
        assert users is not None
        return users.names

    assert names(1) == names(1)
    assert names(1) != names(2)


def test_users_with_too_few_samples_are_excluded() -> None:
    kept = select_users(source([0, 0, 0, 1, 2, 2], [0, 1, 2]), settings(min_samples=2), seed=0)
    assert kept.users is not None
    assert kept.users.names == ["user 0", "user 2"]
    assert kept.x_test[:, 0].tolist() == [0, 2]
    with pytest.raises(UserError, match="no user of diaries has 9 training samples"):
        select_users(source([0, 1], [0, 1]), settings(min_samples=9), seed=0)


def test_leaf_split_by_user_keeps_other_users_for_the_server() -> None:
    kept = select_users(source([0, 1, 2, 3], [4, 5, 6, 7, 7]), settings(dset_ratio=0.5), seed=0)
    assert kept.users is not None
    assert len(kept.users.names) == 2
    assert 2 <= len(kept.x_test) <= 3


def test_samples_without_user_stay_in_server_set() -> None:
    kept = select_users(source([0, 1], [-1, -1, -1]), settings(dset_ratio=0.5), seed=0)
    assert len(kept.x_test) == 3


def test_chosen_users_without_test_samples_raise() -> None:
    given = source(list(range(50)), [0])
    with pytest.raises(
        UserError, match=r"the 1 chosen users of diaries have no test sample.*raise data_args.dset_ratio"
    ):
        select_users(given, settings(dset_ratio=0.02), seed=0)


def test_user_settings_without_users_raise() -> None:
    digits = RunSettings(data=settings())
    with pytest.raises(UserError, match="partition_method is user but digits"):
        load(digits)
    with pytest.raises(UserError, match="dset_ratio"):
        load(RunSettings(data=DataSettings(dset_ratio=0.5)))


def test_femnist_clients_are_writers(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    dataset = femnist(tmp_path)
    assert dataset.client_num == 10
    assert list(dataset[4].values()) == [12] * 10
    assert dataset[1] == 40
    for client, shard in dataset[5].items():
        assert shard.labels.tolist() == letters(12, client)[1]
    half = femnist(tmp_path, seed=3, dset_ratio=0.5)
    assert (half.client_num, half[0], half[1]) == (5, 60, 20)
    assert half.ids == femnist(tmp_path, seed=3, dset_ratio=0.5).ids
    assert half.ids != femnist(tmp_path, seed=4, dset_ratio=0.5).ids
    assert half.ids == femnist(tmp_path, seed=4, dset_ratio=0.5, partition_seed=3).ids


def test_chosen_users_samples_can_be_partitioned_by_other_method(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    data = DataSettings(dataset="femnist", data_cache_dir=str(tmp_path), dset_ratio=0.5, partition_method="iid")
    dataset = load(RunSettings(data=data, train=TrainSettings(client_num_in_total=7)))
    assert (dataset.client_num, dataset[0]) == (7, 60)


def test_client_number_is_number_of_users(tmp_path: Path) -> None:
    write_leaf(tmp_path, "train", 0, {name: letters(6, number) for number, name in enumerate("abcdefg")})
    write_leaf(tmp_path, "test", 0, {"a": letters(3, 1)})
    config = {
        "data_args": {"dataset": "femnist", "data_cache_dir": str(tmp_path), "partition_method": "user"},
        "train_args": {"client_num_per_round": 6},
    }
    given = RunSettings.from_config(config)
    fitted = given.with_client_count(load(given).client_num)
    assert fitted.train.client_num_in_total == 7
    with pytest.raises(UserError, match=r"client_num_per_round is 6 but there are only 5 clients; lower it$"):
        given.with_client_count(5)


def test_client_samples_are_evenly_spaced_and_keep_users() -> None:
    whole = replace(source([0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 2]), y_train=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    part = subsample_clients(whole, DataSettings(client_samples=4))
    assert part.x_train[:, 0].tolist() == [0, 2, 4, 6]
    assert part.y_train.tolist() == [0, 0, 1, 1]
    assert part.users is not None
    assert part.users.train.tolist() == [0, 0, 1, 2]
    assert len(part.x_test) == 3
    assert subsample_clients(whole, DataSettings()) is whole
    with pytest.raises(UserError, match="client_samples is 9 but the clients have only 8 samples"):
        subsample_clients(whole, DataSettings(client_samples=9))


def test_client_samples_of_alternating_classes_keep_all_classes() -> None:
    whole = replace(source([0] * 4000, [0]), y_train=np.arange(4000) % 10)
    for samples in (200, 500):
        part = subsample_clients(whole, DataSettings(client_samples=samples))
        assert np.bincount(part.y_train, minlength=10).min() > samples // 20
        assert np.all(np.diff(part.x_train[:, 0]) > 0), "one of each stretch, in the order of the file"
