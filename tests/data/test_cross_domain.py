"""The server's set from another source than the clients'."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.data import TransductiveDataset, load, load_source
from mrtf_fedml.data.cross_domain import reconciled
from mrtf_fedml.errors import UserError
from mrtf_fedml.settings import RunSettings, TrainSettings
from tests.data.sources.formats import (
    random_images,
    settings,
    write_cifar10,
    write_cifar100_archive,
    write_femnist,
    write_image,
    write_mnist,
    write_svhn,
    write_usps,
)


def loaded(folder: Path, dataset: str, **keys: Any) -> TransductiveDataset:
    return load(RunSettings(data=settings(folder, dataset, **keys), train=TrainSettings(client_num_in_total=5)))


def test_mnist_to_usps_is_enlarged(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_usps(tmp_path)
    dataset = loaded(tmp_path, "mnist", server_dataset="usps")
    assert dataset[5][0].inputs.shape == (30, 1, 28, 28)
    assert dataset.server_inputs.shape == (10, 1, 28, 28)
    assert -1 <= dataset.server_inputs.min() < dataset.server_inputs.max() <= 1
    labels = load_source(settings(tmp_path, "usps")).y_test
    assert labels is not None
    assert dataset.examiner is not None
    assert dataset.examiner.score(torch.from_numpy(labels)) == 1.0


def test_colour_to_grey_and_grey_to_colour(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_svhn(tmp_path)
    grey = loaded(tmp_path, "mnist", server_dataset="svhn")
    assert grey.server_inputs.shape == (10, 1, 28, 28)
    colour = loaded(tmp_path, "svhn", server_dataset="mnist")
    assert colour.server_inputs.shape == (10, 3, 32, 32)
    assert torch.equal(colour.server_inputs[:, 0], colour.server_inputs[:, 2])


def test_luminance_and_size_by_hand() -> None:
    red = torch.stack([torch.ones(2, 2), -torch.ones(2, 2), -torch.ones(2, 2)])[None]
    grey = reconciled(red, (1, 4, 4), "cards")
    assert torch.allclose(grey, torch.full((1, 1, 4, 4), 2 * 0.299 - 1), atol=1e-6)
    image = torch.rand(2, 1, 5, 5)
    assert reconciled(image, (1, 5, 5), "same") is image


def test_a_flat_folder_of_images_beside_any_image_dataset(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for name in ("b.png", "a.png"):
        write_image(tmp_path / "mine" / name, random_images(40, 30, 3))
    dataset = loaded(tmp_path, "mnist", server_dataset="images", server_file=str(tmp_path / "mine"))
    assert dataset.server_inputs.shape == (2, 1, 28, 28)
    assert dataset.ids == ["a.png", "b.png"]
    assert dataset.examiner is None


def test_an_npz_file_for_the_server(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    x = random_images(12, 16, 16, 3)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(12) % 10, x_test=x)
    dataset = loaded(tmp_path, "mnist", server_dataset="npz", server_file=str(tmp_path / "own.npz"))
    assert dataset.server_inputs.shape == (12, 1, 28, 28)


def test_the_clients_dataset_named_again_changes_nothing(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    first, second = loaded(tmp_path, "mnist"), loaded(tmp_path, "mnist", server_dataset="mnist")
    assert torch.equal(first.server_inputs, second.server_inputs)


def test_what_cannot_be_reconciled_gets_a_sentence(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100_archive(tmp_path)
    with pytest.raises(UserError, match="server_dataset cifar100 has 100 classes but cifar10 has 10; take datasets of"):
        loaded(tmp_path, "cifar10", server_dataset="cifar100")
    with pytest.raises(UserError, match="'mnits', which is no dataset; did you mean 'mnist'"):
        loaded(tmp_path, "cifar10", server_dataset="mnits")
    with pytest.raises(UserError, match="server_dataset csv needs dataset csv"):
        loaded(tmp_path, "cifar10", server_dataset="csv")
    np.savez(tmp_path / "rows.npz", x_train=np.ones((10, 4)), y_train=np.arange(10), x_test=np.ones((3, 4)))
    with pytest.raises(UserError, match="holds another kind of sample than cifar10"):
        loaded(tmp_path, "cifar10", server_dataset="npz", server_file=str(tmp_path / "rows.npz"))
    with pytest.raises(UserError, match=r"shape \(4,\) and one of the clients' \(1, 8, 8\)"):
        reconciled(torch.zeros(2, 4), (1, 8, 8), "rows")
    with pytest.raises(UserError, match=r"server_dataset is images but rows holds none"):
        loaded(tmp_path, "npz", data_file=str(tmp_path / "rows.npz"), server_dataset="images", partition_method="iid")


def test_classes_of_other_names_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_cifar10(tmp_path)
    write_mnist(tmp_path)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        loaded(tmp_path, "mnist", server_dataset="cifar10")
    assert "name their classes differently; they are matched by number" in caplog.text


def test_clients_by_user_and_the_server_from_elsewhere(tmp_path: Path) -> None:
    write_femnist(tmp_path / "femnist")
    x = random_images(70, 28, 28)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(70) % 62, x_test=x)
    keys = {"partition_method": "user", "dset_ratio": 0.5, "server_dataset": "npz"}
    dataset = loaded(tmp_path, "femnist", server_file=str(tmp_path / "own.npz"), **keys)
    assert (dataset.client_num, len(dataset.server_inputs)) == (5, 70)


def test_a_part_of_the_servers_set_is_evenly_spaced_and_keeps_its_ids_and_labels(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_usps(tmp_path)
    rows = [0, 2, 5, 7]
    for server in ("mnist", "usps"):
        whole = loaded(tmp_path, "mnist", server_dataset=server)
        part = loaded(tmp_path, "mnist", server_dataset=server, server_samples=4)
        assert len(whole.server_inputs) == 10
        assert torch.equal(part.server_inputs, whole.server_inputs[rows])
        assert part.ids == [whole.ids[row] for row in rows]
        labels = load_source(settings(tmp_path, server)).y_test
        assert labels is not None
        assert part.examiner is not None
        assert part.examiner.score(torch.from_numpy(labels[rows])) == 1.0
    with pytest.raises(UserError, match="server_samples is 11 but the server's set has only 10"):
        loaded(tmp_path, "mnist", server_samples=11)
