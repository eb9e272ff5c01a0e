"""The data of each party of a cross-silo federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

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


CLASSES = ["ill", "well"]


def csv_settings(folder: Path, **keys: Any) -> RunSettings:
    """A server and a silo with tables whose columns are in different orders; the silo lacks a class and a ward."""
    (folder / "party0.csv").write_text("id,age,ward\np1,30,A\np2,50,C\n")
    (folder / "party1.csv").write_text("ward,label,age\nA,ill,\nB,ill,40\nA,ill,60\n")
    data = {"own_data_file": str(folder / "party{rank}.csv"), "class_names": CLASSES, "fill_missing": True, **keys}
    return RunSettings.from_config({"data_args": {"dataset": "csv", "standardize": False, **data}})


def test_parties_with_csv_files_agree_on_features_and_classes(tmp_path: Path) -> None:
    settings = csv_settings(tmp_path, categories={"ward": ["A", "B", "C"]})
    server, silo = load_for_rank(settings, 0), load_for_rank(settings, 1)
    assert isinstance(server, TransductiveDataset)
    assert isinstance(silo, SiloDataset)
    assert server.preprocessing.features == silo.features == ["age", "ward=A", "ward=B", "ward=C"]
    assert server.class_names == silo.class_names == CLASSES
    assert server.ids == ["p1", "p2"]
    assert server.server_inputs.tolist() == [[30, 1, 0, 0], [50, 0, 0, 1]]
    # A missing number is the mean of the party's own values.
    assert silo[5][0].inputs.tolist() == [[50, 1, 0, 0], [40, 0, 1, 0], [60, 1, 0, 0]]
    assert silo[5][0].labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("keys", "pattern"),
    [
        ({}, r"'ward'.*data_args.categories"),
        ({"categories": {"ward": ["A", "B"], "sex": ["f"]}}, r"no column 'sex'"),
        ({"class_names": None}, "data_args.class_names"),
        ({"class_names": ["sick", "well"], "categories": {"ward": ["A", "B"]}}, r"'ill'.*data_args.class_names"),
    ],
)
def test_csv_file_of_a_silo_without_agreement_raises(tmp_path: Path, keys: dict[str, Any], pattern: str) -> None:
    with pytest.raises(UserError, match=pattern):
        load_for_rank(csv_settings(tmp_path, **keys), 1)


def test_parties_with_image_folders_have_the_same_shape(tmp_path: Path) -> None:
    (tmp_path / "party0").mkdir()
    Image.new("L", (9, 7), 255).save(tmp_path / "party0" / "x.png")
    (tmp_path / "party1" / "well").mkdir(parents=True)
    Image.new("RGB", (5, 5), "red").save(tmp_path / "party1" / "well" / "a.png")
    data = {"own_data_file": str(tmp_path / "party{rank}"), "class_names": CLASSES, "image_size": 8}
    settings = RunSettings.from_config({"data_args": {"dataset": "images", **data}})
    server, silo = load_for_rank(settings, 0), load_for_rank(settings, 1)
    assert isinstance(server, TransductiveDataset)
    assert server.input_shape == silo.input_shape == (3, 8, 8)
    assert server.ids == ["x.png"]
    assert silo[5][0].labels.tolist() == [1]
    without_size = RunSettings.from_config({"data_args": {"dataset": "images", **data, "image_size": None}})
    with pytest.raises(UserError, match="image_size"):
        load_for_rank(without_size, 1)


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
