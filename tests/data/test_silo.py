"""The data of each party of a cross-silo federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import SiloDataset, TransductiveDataset, load, load_for_rank
from mrtf_fedml.errors import UserError
from tests.conftest import small_config, small_settings


def with_own_file(file: str) -> RunSettings:
    return small_settings(client_num_in_total=2, client_num_per_round=2, own_data_file=file)


def write_files(folder: Path, **changes: Any) -> str:
    generator = np.random.default_rng(0)
    names = np.array(["cat", "dog", "owl"])
    np.savez(
        folder / "party0.npz", x_test=generator.normal(size=(5, 4)), ids=np.array(list("abcde")), class_names=names
    )
    for rank in (1, 2):
        arrays = {
            "x_train": generator.normal(size=(6, 4)),
            "y_train": np.arange(6) % 2,
            "class_names": names,
            **changes,
        }
        np.savez(folder / f"party{rank}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return str(folder / "party{rank}.npz")


def test_silo_has_its_shard_in_the_order_of_the_simulation() -> None:
    settings = small_settings()
    whole = load(settings)
    for client in (0, 5):
        silo = load_for_rank(settings, client + 1)
        assert isinstance(silo, SiloDataset)
        assert list(silo[5]) == [client]
        assert silo[3] is None
        assert len(silo[5][client].inputs) == whole[4][client] == silo[4][client]
        pairs = zip(
            whole[5][client].shuffled_batches(torch.Generator().manual_seed(1)),
            silo[5][client].shuffled_batches(torch.Generator().manual_seed(1)),
            strict=True,
        )
        for (inputs, labels), (same_inputs, same_labels) in pairs:
            assert torch.equal(inputs, same_inputs)
            assert torch.equal(labels, same_labels)
        assert (silo.input_shape, silo.class_num) == (whole.input_shape, whole.class_num)


def test_server_has_its_inputs_and_no_client_samples() -> None:
    settings = small_settings()
    server = load_for_rank(settings, 0)
    assert isinstance(server, TransductiveDataset)
    assert torch.equal(server.server_inputs, load(settings).server_inputs)
    assert (server[2], server[5], server[6]) == (None, {}, {})


def test_simulation_has_all_data() -> None:
    assert len(load_for_rank(small_settings(), None)[5]) == 8


def test_every_party_can_have_its_own_file(tmp_path: Path) -> None:
    settings = with_own_file(write_files(tmp_path))
    server, silos = load_for_rank(settings, 0), [load_for_rank(settings, rank) for rank in (1, 2)]
    assert isinstance(server, TransductiveDataset)
    assert server.ids == list("abcde")
    assert server.class_names == ["cat", "dog", "owl"]
    assert server.evaluator is None
    assert all(silo.class_num == 3 and silo.input_shape == (4,) for silo in silos), "also for a class that none holds"
    assert not torch.equal(silos[0][5][0].inputs, silos[1][5][1].inputs)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"class_names": None}, "has no array 'class_names'"),
        ({"y_train": None}, "has no array 'y_train'"),
        ({"y_train": np.arange(6)}, "class_names has 3 names but y_train holds class 5"),
    ],
)
def test_invalid_party_file_raises(tmp_path: Path, changes: dict[str, Any], pattern: str) -> None:
    with pytest.raises(UserError, match=pattern):
        load_for_rank(with_own_file(write_files(tmp_path, **changes)), 1)


def test_missing_or_damaged_party_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"party1\.npz' does not exist"):
        load_for_rank(with_own_file(str(tmp_path / "party{rank}.npz")), 1)
    (tmp_path / "party1.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read as an"):
        load_for_rank(with_own_file(str(tmp_path / "party{rank}.npz")), 1)


def test_own_data_file_is_a_key_of_data_args() -> None:
    assert small_config(own_data_file="mine.npz")["data_args"]["own_data_file"] == "mine.npz"
    settings = small_settings(own_data_file="mine.npz")
    assert settings.data.own_data_file == "mine.npz"
    assert settings.to_config()["data_args"]["own_data_file"] == "mine.npz"


def test_unused_data_file_raises_for_every_party() -> None:
    for rank in (None, 0, 1):
        with pytest.raises(UserError, match=r"data_file is 'mine.npz' but data_args.dataset is 'digits'"):
            load_for_rank(small_settings(data_file="mine.npz"), rank)
