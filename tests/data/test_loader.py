"""The data from a function of the user's own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.data import TransductiveDataset, load
from mrtf_fedml.errors import UserError
from mrtf_fedml.settings import DataSettings, RunSettings

NUMBERS = itertools.count()

CODE = """
import numpy as np, torch
from torch.utils.data import DataLoader, TensorDataset
from mrtf_fedml.data import Source, load as our_load
from mrtf_fedml.settings import RunSettings

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


def loaded(name: str) -> TransductiveDataset:
    config = {"data_args": {"loader": name}, "train_args": {"batch_size": 7, "client_num_per_round": 2}}
    return load(RunSettings.from_config(config))


@pytest.mark.parametrize("function", ["eight", "eight_and_classes", "asks"])
def test_fedmls_tuple_of_eight(module: str, function: str) -> None:
    dataset = loaded(f"{module}:{function}")
    assert (dataset.client_num, dataset.class_num, len(dataset.server_inputs)) == (3, 3, 5)
    assert dataset.examiner is not None


def test_our_own_object(module: str) -> None:
    assert loaded(f"{module}:ours").client_num == 20


def test_a_source_is_split_and_keeps_its_ids(module: str) -> None:
    config = {
        "data_args": {"loader": f"{module}:source", "partition_method": "iid"},
        "train_args": {"client_num_in_total": 4, "client_num_per_round": 2},
    }
    dataset = load(RunSettings.from_config(config))
    assert dataset.client_num == 4
    assert dataset.ids[3] == "row 3"
    assert dataset.class_names == ["no", "yes"]


def test_server_samples_shortens_a_source_but_not_what_is_whole(module: str) -> None:
    train = {"client_num_in_total": 4, "client_num_per_round": 2}
    data = {"partition_method": "iid", "server_samples": 2}
    source = {"data_args": {**data, "loader": f"{module}:source"}, "train_args": train}
    assert len(load(RunSettings.from_config(source)).server_inputs) == 2
    whole = {"data_args": {**data, "loader": f"{module}:eight"}, "train_args": train}
    with pytest.raises(UserError, match="server_samples cannot shorten"):
        load(RunSettings.from_config(whole))


def test_mistakes_are_one_sentence(module: str) -> None:
    for name, sentence in (
        ("justaname", "data_args.loader is 'justaname'; write it as package.module:Name"),
        (f"{module}:", "write it as package.module:Name"),
        ("no_such_module:load", "there is no module 'no_such_module'; run from the folder that holds it"),
        (f"{module}:eigth", "has no 'eigth'; did you mean 'eight'"),
        (f"{module}:__name__", "is no function but str"),
        (f"{module}:nothing", "returned a NoneType; return FedML's tuple of eight"),
        (f"{module}:fails", rf"failed with KeyError: 'key' \(.*{module}.py, line \d+\); mend"),
        (f"{module}:bad_source", "the data of mine: x_train holds NaN"),
    ):
        with pytest.raises(UserError, match=sentence) as told:
            loaded(name)
        assert "\n" not in str(told.value)


def test_a_module_that_fails_at_import(module: str, tmp_path: Path) -> None:
    broken = f"{module}_broken"
    (tmp_path / f"{broken}.py").write_text("import nothing_of_this_name")
    with pytest.raises(UserError, match=r"importing .* fails with .*nothing_of_this_name"):
        loaded(f"{broken}:load")


def test_a_loader_written_in_c_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"data_args.loader builtins:iter failed with TypeError") as told:
        load(RunSettings(data=DataSettings(loader="builtins:iter")))
    assert "\n" not in str(told.value)
