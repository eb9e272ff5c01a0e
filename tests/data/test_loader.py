"""Datasets from sources, from a user's own loader and from FedML."""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from mrtf_fedml.config import (
    CommonSettings,
    DataSettings,
    RunSettings,
    TrainSettings,
)
from mrtf_fedml.data import TensorShard, TransductiveDataset, from_fedml, load, load_source, to_tensor
from mrtf_fedml.errors import UserError

NUMBERS = itertools.count()

CODE = """
import numpy as np, torch
from torch.utils.data import DataLoader, TensorDataset
from mrtf_fedml.data import Source, load as our_load
from mrtf_fedml.config import RunSettings

def loader(n):
    return DataLoader(TensorDataset(torch.zeros(n, 4), torch.arange(n) % 3), batch_size=2)

def eight(args):
    clients = {k: loader(k + 2) for k in range(3)}
    nums = {k: k + 2 for k in range(3)}
    return 9, 5, None, loader(5), nums, clients, clients, 3

def eight_and_classes(args):
    return eight(args), 3

def ours():
    return our_load(RunSettings())

def source(args):
    x = np.arange(40.0).reshape(20, 2)
    ids = [f"row {n}" for n in range(20)]
    return Source("mine", x, np.arange(20) % 2, x, None, ["no", "yes"], ids)

def asks(args):
    assert args.batch_size == 7 and args.client_num_in_total == 20 and args.dataset == "digits"
    return eight(args)

def bad_source(args):
    return Source("mine", np.full((4, 2), np.nan), np.zeros(4), np.zeros((4, 2)), None, ["no", "yes"], list("abcd"))

def nothing(args):
    return None

def fails(args):
    return {}["key"]

data = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's in the current folder, under a name that no test has imported."""
    name = f"users_own_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield name
    sys.modules.pop(name, None)


def load_with(name: str) -> TransductiveDataset:
    config = {"data_args": {"loader": name}, "train_args": {"batch_size": 7, "client_num_per_round": 2}}
    return load(RunSettings.from_config(config))


@pytest.mark.parametrize("function", ["eight", "eight_and_classes", "asks"])
def test_loader_may_return_fedml_tuple(module: str, function: str) -> None:
    dataset = load_with(f"{module}:{function}")
    assert (dataset.client_num, dataset.class_num, len(dataset.server_inputs)) == (3, 3, 5)
    assert dataset.evaluator is not None


def test_loader_may_return_transductive_dataset(module: str) -> None:
    assert load_with(f"{module}:ours").client_num == 20


def test_loader_may_return_source(module: str) -> None:
    config = {
        "data_args": {"loader": f"{module}:source", "partition_method": "iid"},
        "train_args": {"client_num_in_total": 4, "client_num_per_round": 2},
    }
    dataset = load(RunSettings.from_config(config))
    assert dataset.client_num == 4
    assert dataset.ids[3] == "row 3"
    assert dataset.class_names == ["no", "yes"]


def test_server_samples_applies_to_source_only(module: str) -> None:
    train = {"client_num_in_total": 4, "client_num_per_round": 2}
    data = {"partition_method": "iid", "server_samples": 2}
    source = {"data_args": {**data, "loader": f"{module}:source"}, "train_args": train}
    assert len(load(RunSettings.from_config(source)).server_inputs) == 2
    whole = {"data_args": {**data, "loader": f"{module}:eight"}, "train_args": train}
    with pytest.raises(UserError, match="server_samples"):
        load(RunSettings.from_config(whole))


def test_invalid_loader_raises_one_line(module: str) -> None:
    for name, sentence in (
        ("justaname", "data_args.loader is 'justaname'; write it as package.module:Name"),
        (f"{module}:", "write it as package.module:Name"),
        ("no_such_module:load", "there is no module 'no_such_module'; run from the folder"),
        (f"{module}:eigth", "has no 'eigth'; did you mean 'eight'"),
        (f"{module}:__name__", "is a str; name a function"),
        (f"{module}:nothing", "returned a NoneType; return FedML's tuple of eight"),
        (f"{module}:fails", rf"failed with KeyError: 'key' \(.*{module}.py, line \d+\)"),
        (f"{module}:bad_source", "the data of mine: x_train holds NaN"),
    ):
        with pytest.raises(UserError, match=sentence) as caught:
            load_with(name)
        assert "\n" not in str(caught.value)


def test_loader_module_that_fails_at_import_raises(module: str, tmp_path: Path) -> None:
    broken = f"{module}_broken"
    (tmp_path / f"{broken}.py").write_text("import nothing_of_this_name")
    with pytest.raises(UserError, match=r"importing .* fails with .*nothing_of_this_name"):
        load_with(f"{broken}:load")


def test_loader_written_in_c_raises_one_line() -> None:
    with pytest.raises(UserError, match=r"data_args.loader builtins:iter failed with TypeError") as caught:
        load(RunSettings(data=DataSettings(loader="builtins:iter")))
    assert "\n" not in str(caught.value)


def settings(seed: int = 0, clients: int = 20, **data: Any) -> RunSettings:
    return RunSettings(
        common=CommonSettings(random_seed=seed),
        data=DataSettings(**data),
        train=TrainSettings(client_num_in_total=clients, batch_size=16),
    )


def indices(dataset: TransductiveDataset) -> list[list[int]]:
    return [shard.indices.tolist() for shard in dataset[5].values()]


def test_dataset_unpacks_as_fedml_tuple() -> None:
    dataset = load(settings())
    train_num, test_num, train_global, test_global, nums, train_local, test_local, class_num = dataset
    assert (train_num, test_num, class_num) == (1198, 599, 10)
    assert isinstance(dataset, list)
    assert list(nums) == list(train_local) == list(test_local) == list(range(20))
    assert sum(nums.values()) == train_global.samples == 1198
    assert all(nums[client] == shard.samples for client, shard in train_local.items())
    assert {len(shard.labels.unique()) for shard in train_local.values()} == {3}
    assert sum(len(x) for x, _ in test_global) == 599
    assert dataset.input_shape == (1, 8, 8)
    assert (dataset.class_num, dataset.class_names) == (10, [str(digit) for digit in range(10)])
    assert dataset.ids == [str(index) for index in range(599)]


def test_clients_have_their_samples_with_labels() -> None:
    dataset, source = load(settings()), load_source(DataSettings())
    inputs, labels = to_tensor(source.x_train), torch.from_numpy(source.y_train)
    for shard in dataset[5].values():
        assert torch.equal(torch.cat([x for x, _ in shard]), inputs[shard.indices])
        assert torch.equal(torch.cat([y for _, y in shard]), labels[shard.indices])
    assert torch.equal(dataset.server_inputs, to_tensor(source.x_test))


def test_server_has_inputs_without_labels() -> None:
    dataset = load(settings())
    assert torch.equal(torch.cat([x for x, _ in dataset[3]]), dataset.server_inputs)
    assert {int(label) for _, y in dataset[3] for label in y} == {-1}
    source = load_source(DataSettings())
    assert source.y_test is not None
    assert dataset.evaluator is not None
    assert dataset.evaluator.score(torch.from_numpy(source.y_test)) == 1.0


def test_local_test_data_are_the_clients_shards() -> None:
    dataset = load(settings())
    assert all(dataset[6][client] is shard for client, shard in dataset[5].items())


def test_clients_share_one_storage() -> None:
    dataset = load(settings(clients=300, partition_method="iid"))
    storages = {shard.inputs.untyped_storage().data_ptr() for shard in [*dataset[5].values(), dataset[2]]}
    assert len(storages) == 1
    assert dataset[2].inputs.shape[0] == 1198


def test_partition_uses_partition_seed_else_random_seed() -> None:
    assert indices(load(settings(seed=1))) == indices(load(settings(seed=2, partition_seed=1)))
    assert indices(load(settings(seed=1))) != indices(load(settings(seed=2)))
    assert indices(load(settings(seed=1, partition_seed=0))) == indices(load(settings(seed=0)))


def test_true_labels_affect_only_the_evaluator(tmp_path: Path) -> None:
    source = load_source(DataSettings())
    assert source.y_test is not None
    loaded = []
    for name, labels in (
        ("a", source.y_test),
        ("b", source.y_test[::-1]),
        ("c", np.zeros(599, int)),
        ("d", None),
    ):
        file = tmp_path / f"{name}.npz"
        given = {} if labels is None else {"y_test": labels}
        np.savez(file, x_train=source.x_train, y_train=source.y_train, x_test=source.x_test, **given)
        loaded.append(load(settings(dataset="npz", data_file=str(file))))
    first = loaded[0]
    for other in loaded[1:]:
        assert torch.equal(first.server_inputs, other.server_inputs)
        assert indices(first) == indices(other)
        assert (first.class_num, first.ids) == (other.class_num, other.ids)
    assert [dataset.evaluator is None for dataset in loaded] == [False, False, False, True]


def test_excluded_classes_are_not_counted() -> None:
    dataset = load(settings(clients=2, classes_per_client=2))
    assert dataset[0] == sum(dataset[4].values()) == dataset[2].samples < 1198
    assert len(dataset[2].labels.unique()) == 4
    assert dataset.class_num == 10


def test_dataset_with_labels_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="SealedEvaluator"):
        pickle.dumps(load(settings()))


def test_loading_keeps_global_random_state() -> None:
    np.random.seed(0)
    torch.manual_seed(0)
    before, state = np.random.get_state()[1].copy(), torch.get_rng_state()
    load(settings())
    assert (np.random.get_state()[1] == before).all()
    assert torch.equal(torch.get_rng_state(), state)


def fedml_tuple(**changes: Any) -> tuple[Any, ...]:
    """Two clients and a shuffling loader for the server, as FedML's loaders give them."""
    generator = torch.Generator().manual_seed(0)
    shards = [TensorDataset(torch.randn(n, 4, generator=generator), torch.arange(n) % 3) for n in (6, 9)]
    loaders = {client: DataLoader(shard, batch_size=4) for client, shard in enumerate(shards)}
    server = TensorDataset(torch.arange(28.0).reshape(7, 4), torch.tensor([0, 1, 2, 0, 1, 2, 2]))
    entries = {
        "train_num": 15,
        "test_num": 7,
        "train_global": None,
        "test_global": DataLoader(server, batch_size=3, shuffle=True),
        "nums": {0: 6, 1: 9},
        "train_local": loaders,
        "test_local": {0: None, 1: loaders[1]},
        "class_num": 4,
    }
    assert set(changes) <= set(entries)
    return tuple({**entries, **changes}.values())


@pytest.mark.parametrize("container", [tuple, list])
def test_from_fedml_keeps_clients_and_seals_labels(container: type) -> None:
    given = fedml_tuple()
    dataset = from_fedml(container(given))
    assert isinstance(dataset, TransductiveDataset)
    assert dataset[:3] == [15, 7, None]
    assert dataset[4] is given[4]
    assert dataset[5] is given[5]
    assert dataset[6] == given[6]
    assert dataset[7] == dataset.class_num == 4
    assert dataset.class_names == ["0", "1", "2", "3"]
    assert dataset.input_shape == (4,)
    assert dataset.ids == list("0123456")
    assert torch.equal(dataset.server_inputs, torch.arange(28.0).reshape(7, 4))
    assert {int(label) for _, y in dataset[3] for label in y} == {-1}
    assert dataset.evaluator is not None
    assert dataset.evaluator.score(torch.tensor([0, 1, 2, 0, 1, 2, 2])) == 1.0


def test_from_fedml_returns_transductive_dataset_unchanged() -> None:
    dataset = load(settings())
    assert from_fedml(dataset) is dataset


def test_transductive_dataset_converts_to_fedml_tuple() -> None:
    ours = load(settings())
    again = from_fedml(list(ours))
    assert torch.equal(again.server_inputs, ours.server_inputs)
    assert again.evaluator is None
    assert isinstance(again[5][0], TensorShard)


def test_local_test_set_equal_to_server_set_is_replaced() -> None:
    given = fedml_tuple()
    server_loader = given[3]
    same_data = DataLoader(server_loader.dataset, batch_size=2)
    dataset = from_fedml(fedml_tuple(test_global=server_loader, test_local={0: server_loader, 1: same_data}))
    assert dataset[6] == dataset[5]


def test_from_fedml_with_unlabelled_batches() -> None:
    batches = [(torch.zeros(2, 4), torch.tensor([-1, -1])), (torch.ones(1, 4), torch.tensor([-1]))]
    dataset = from_fedml(fedml_tuple(test_global=batches))
    assert dataset.evaluator is None
    assert dataset[1] == 3
    assert dataset.server_inputs[:, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"test_global": None}, "test_global is None"),
        ({"test_global": []}, "test_global is empty"),
        ({"nums": {0: 0, 1: 9, 2: 0}}, "client 0, 2 of the dataset has no training samples"),
        ({"class_num": None}, r"class_num \(its last entry\) is None"),
        ({"class_num": 1}, "class_num .* is 1"),
        ({"class_num": 2}, "labels hold class 2 but there are only 2 classes"),
    ],
)
def test_invalid_fedml_dataset_raises(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        from_fedml(fedml_tuple(**changes))


@pytest.mark.parametrize("wrong", [None, [], (1, 2, 3), {"train": 1}])
def test_dataset_without_eight_entries_raises(wrong: Any) -> None:
    with pytest.raises(UserError, match="not FedML's tuple of eight entries"):
        from_fedml(wrong)
