"""Datasets whose samples an encoder turns into features: images and texts, in one process and for silos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import SiloDataset, TransductiveDataset, load, load_for_rank
from mrtf_fedml.data.preprocessing import to_tensor
from mrtf_fedml.data.sources import load_source
from mrtf_fedml.errors import UserError
from tests.conftest import small_config, small_settings
from tests.encoders.tiny import letters, pooled

POOLED = "tests.encoders.tiny:pooled"
LETTERS = "tests.encoders.tiny:letters"
TEXTS = ["all aboard", "bubble bath", "ants and apples", "a rabbit hobby", "banana alarm", "big bob ebbs"]
LABELS = ["a", "b", "a", "b", "a", "b"]


def write_tables(folder: Path, server_column: str = "review") -> dict[str, Any]:
    rows = [f'{index},"{text}, again",{label}' for index, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True))]
    (folder / "clients.csv").write_text("\n".join(["stars,review,label", *rows * 4]) + "\n")
    (folder / "server.csv").write_text("\n".join([f"id,{server_column}", *(f"s{i},{t}" for i, t in enumerate(TEXTS))]))
    return {
        "dataset": "csv",
        "data_file": str(folder / "clients.csv"),
        "server_file": str(folder / "server.csv"),
        "text_column": "review",
        "partition_method": "iid",
        "client_num_in_total": 2,
        "client_num_per_round": 2,
    }


def test_images_become_standardized_features_and_are_not_augmented() -> None:
    settings = small_settings(encoder=POOLED)
    dataset, source = load(settings), load_source(settings.data)
    features = pooled(to_tensor(source.x_train))
    rows = torch.cat([shard.indices for shard in dataset[5].values()]).sort().values
    mean, deviation = features[rows].double().mean(0), features[rows].double().std(0, correction=0)
    expected = (pooled(to_tensor(source.x_test)).double() - mean) / deviation
    assert torch.allclose(dataset.server_inputs.double(), expected, atol=1e-4)
    assert dataset.input_shape == (4,)
    assert not dataset[5][0].augments
    assert dataset.encoder_digest is not None


def test_features_stay_as_they_are_without_standardization() -> None:
    settings = small_settings(encoder=POOLED, standardize=False)
    assert torch.equal(load(settings).server_inputs, pooled(to_tensor(load_source(settings.data).x_test)))


def test_server_samples_are_selected_before_they_are_encoded() -> None:
    dataset = load(small_settings(encoder=POOLED, server_samples=7))
    assert dataset.server_inputs.shape == (7, 4)


def test_text_column_of_a_table_is_encoded_and_other_columns_are_no_features(tmp_path: Path) -> None:
    settings = small_settings(**write_tables(tmp_path), encoder=LETTERS, standardize=False)
    dataset = load(settings)
    assert torch.equal(dataset.server_inputs, letters(TEXTS))
    assert dataset.ids == [f"s{index}" for index in range(6)]
    assert dataset.class_names == ["a", "b"]
    assert dataset.preprocessing.kind == "text"


@pytest.mark.parametrize("party", [None, 0, 1])
def test_texts_without_encoder_are_an_error_that_names_the_key(tmp_path: Path, party: int | None) -> None:
    config = small_config(**write_tables(tmp_path))
    if party is not None:
        config["common_args"]["training_type"] = "cross_silo"
        config["comm_args"]["backend"] = "GRPC"
    with pytest.raises(UserError, match=r"model_args\.encoder"):
        load_for_rank(RunSettings.from_config(config), party)


def test_missing_text_column_is_an_error_that_names_it(tmp_path: Path) -> None:
    keys = write_tables(tmp_path, server_column="text")
    with pytest.raises(UserError, match=r"server\.csv.*review.*text_column"):
        load(small_settings(**keys, encoder=LETTERS))


def test_empty_text_is_an_error_that_names_the_row(tmp_path: Path) -> None:
    keys = write_tables(tmp_path)
    with (tmp_path / "server.csv").open("a") as file:
        file.write("\nlast,  \n")
    with pytest.raises(UserError, match=r"server\.csv.*row 7"):
        load(small_settings(**keys, encoder=LETTERS))


def test_every_silo_of_a_trial_has_the_features_of_one_process(tmp_path: Path) -> None:
    keys = {"encoder": POOLED, "client_num_in_total": 3, "client_num_per_round": 3, "classes_per_client": 5}
    whole = load(small_settings(**keys))
    config = small_config(training_type="cross_silo", backend="GRPC", **keys)
    settings = RunSettings.from_config(config)
    server = load_for_rank(settings, 0)
    assert isinstance(server, TransductiveDataset)
    assert torch.equal(server.server_inputs, whole.server_inputs)
    for client in range(3):
        silo = load_for_rank(settings, client + 1)
        assert isinstance(silo, SiloDataset)
        shard = whole[5][client]
        assert torch.equal(silo.example_inputs, shard.inputs[shard.indices])
        assert silo.encoder_digest == whole.encoder_digest


def test_party_with_its_own_file_encodes_its_texts(tmp_path: Path) -> None:
    names = np.array(["a", "b"])
    np.savez(tmp_path / "0.npz", x_test=np.array(TEXTS), class_names=names)
    np.savez(tmp_path / "1.npz", x_train=np.array(TEXTS), y_train=np.array([0, 1] * 3), class_names=names)
    config = small_config(
        training_type="cross_silo",
        backend="GRPC",
        own_data_file=str(tmp_path / "{rank}.npz"),
        client_num_in_total=1,
        client_num_per_round=1,
        encoder=LETTERS,
    )
    settings = RunSettings.from_config(config)
    server, silo = load_for_rank(settings, 0), load_for_rank(settings, 1)
    assert torch.equal(silo.example_inputs, letters(TEXTS))
    assert isinstance(server, TransductiveDataset)
    standardizer = server.preprocessing.standardizer
    assert standardizer is not None
    assert torch.equal(server.server_inputs, standardizer(letters(TEXTS)))


def test_dataset_of_eight_entries_with_encoder_is_an_error() -> None:
    with pytest.raises(UserError, match=r"model_args\.encoder"):
        load(small_settings(encoder=POOLED, loader="tests.data.test_encoding:eight_entries"))


def eight_entries() -> list[Any]:
    batch = [(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))]
    return [4, 4, None, batch, {0: 4}, {0: batch}, {0: batch}, 2]
