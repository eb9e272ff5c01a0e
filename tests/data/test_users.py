"""A share of the users takes part, and brings its own test samples to the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.data import (
    Source,
    TransductiveDataset,
    Users,
    load,
)
from mrtf_fedml.data.users import with_chosen_users, with_fewer_samples
from mrtf_fedml.errors import UserError
from mrtf_fedml.settings import (
    CommonSettings,
    DataSettings,
    RunSettings,
    TrainSettings,
)
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


def test_the_servers_set_is_the_union_of_the_chosen_users_test_samples() -> None:
    given = source([0, 1, 2, 3] * 3, [3, 2, 1, 0, 3])
    kept = with_chosen_users(given, settings(dset_ratio=0.5), seed=0)
    assert kept.users is not None
    chosen = {given.users.names.index(name) for name in kept.users.names}  # type: ignore[union-attr]
    assert len(chosen) == 2
    assert {int(x) % 4 for x in kept.x_train[:, 0]} == chosen
    assert {[3, 2, 1, 0, 3][int(x)] for x in kept.x_test[:, 0]} == chosen
    assert kept.ids == [f"id {int(x)}" for x in kept.x_test[:, 0]]
    assert kept.y_test is not None
    assert kept.y_test.tolist() == [int(x) % 2 for x in kept.x_test[:, 0]]


def test_the_papers_numbers_of_clients_are_rounded_down() -> None:
    for users, clients in ((3597, 359), (1129, 112), (5, 1)):
        kept = with_chosen_users(source(list(range(users)), list(range(users))), settings(dset_ratio=0.1), seed=0)
        assert kept.users is not None
        assert len(kept.users.names) == clients


def test_the_choice_belongs_to_the_seed() -> None:
    given = source(list(range(100)), list(range(100)))

    def names(seed: int) -> list[str]:
        users = with_chosen_users(given, settings(dset_ratio=0.2), seed).users
        assert users is not None
        return users.names

    assert names(1) == names(1)
    assert names(1) != names(2)


def test_users_with_too_few_samples_are_left_out() -> None:
    kept = with_chosen_users(source([0, 0, 0, 1, 2, 2], [0, 1, 2]), settings(min_samples=2), seed=0)
    assert kept.users is not None
    assert kept.users.names == ["user 0", "user 2"]
    assert kept.x_test[:, 0].tolist() == [0, 2]
    with pytest.raises(UserError, match="no user of diaries has 9 training samples"):
        with_chosen_users(source([0, 1], [0, 1]), settings(min_samples=9), seed=0)


def test_leafs_split_by_user_has_other_users_at_the_server() -> None:
    kept = with_chosen_users(source([0, 1, 2, 3], [4, 5, 6, 7, 7]), settings(dset_ratio=0.5), seed=0)
    assert kept.users is not None
    assert len(kept.users.names) == 2
    assert 2 <= len(kept.x_test) <= 3


def test_samples_that_no_user_made_are_always_the_servers() -> None:
    kept = with_chosen_users(source([0, 1], [-1, -1, -1]), settings(dset_ratio=0.5), seed=0)
    assert len(kept.x_test) == 3


def test_chosen_users_without_test_samples() -> None:
    given = source(list(range(50)), [0])
    with pytest.raises(
        UserError, match=r"the 1 chosen users of diaries have no test sample.*raise data_args.dset_ratio"
    ):
        with_chosen_users(given, settings(dset_ratio=0.02), seed=0)


def test_data_without_users() -> None:
    digits = RunSettings(data=settings())
    with pytest.raises(UserError, match="digits does not say whose a sample is; take femnist"):
        load(digits)
    with pytest.raises(UserError, match="takes a share of the users, but digits names none"):
        load(RunSettings(data=DataSettings(dset_ratio=0.5)))


def test_clients_are_writers(tmp_path: Path) -> None:
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


def test_the_users_share_may_be_split_otherwise(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    data = DataSettings(dataset="femnist", data_cache_dir=str(tmp_path), dset_ratio=0.5, partition_method="iid")
    dataset = load(RunSettings(data=data, train=TrainSettings(client_num_in_total=7)))
    assert (dataset.client_num, dataset[0]) == (7, 60)


def test_the_run_has_as_many_clients_as_users(tmp_path: Path) -> None:
    write_leaf(tmp_path, "train", 0, {name: letters(6, number) for number, name in enumerate("abcdefg")})
    write_leaf(tmp_path, "test", 0, {"a": letters(3, 1)})
    config = {
        "data_args": {"dataset": "femnist", "data_cache_dir": str(tmp_path), "partition_method": "user"},
        "train_args": {"client_num_per_round": 6},
    }
    given = RunSettings.from_config(config)
    fitted = given.with_clients(load(given).client_num)
    assert fitted.train.client_num_in_total == 7
    with pytest.raises(UserError, match=r"client_num_per_round is 6 but there are only 5 clients; lower it$"):
        given.with_clients(5)


def test_fewer_samples_are_evenly_spaced_and_keep_their_users() -> None:
    whole = replace(source([0, 0, 0, 1, 1, 1, 2, 2], [0, 1, 2]), y_train=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    part = with_fewer_samples(whole, DataSettings(client_samples=4))
    assert part.x_train[:, 0].tolist() == [0, 2, 4, 6]
    assert part.y_train.tolist() == [0, 0, 1, 1]
    assert part.users is not None
    assert part.users.train.tolist() == [0, 0, 1, 2]
    assert len(part.x_test) == 3
    assert with_fewer_samples(whole, DataSettings()) is whole
    with pytest.raises(UserError, match="client_samples is 9 but the clients have only 8 samples"):
        with_fewer_samples(whole, DataSettings(client_samples=9))


def test_fewer_samples_of_classes_that_take_turns_are_of_all_of_them() -> None:
    whole = replace(source([0] * 4000, [0]), y_train=np.arange(4000) % 10)
    for samples in (200, 500):
        part = with_fewer_samples(whole, DataSettings(client_samples=samples))
        assert np.bincount(part.y_train, minlength=10).min() > samples // 20
        assert np.all(np.diff(part.x_train[:, 0]) > 0), "one of each stretch, in the order of the file"
