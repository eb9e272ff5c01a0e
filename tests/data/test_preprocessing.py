"""Arrays to tensors, and the standardization of tables without labels."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from mrtf_fedml.data import Source, TransductiveDataset, load, load_for_rank
from mrtf_fedml.data.preprocessing import Preprocessing, Standardizer, to_tensor
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings

#: Features as people have them: a year, a fraction, a constant, an income.
X = np.random.default_rng(0).normal(size=(60, 4)) * [10, 0.01, 0, 30000] + [2000, 0.5, 7, 40000]
Y = np.arange(60) % 3
X_SERVER, Y_SERVER = X[:20] + np.array([0, 0, 100, 0]), Y[:20]

CLIENTS = {"client_num_in_total": 4, "client_num_per_round": 2, "partition_method": "iid", "model": "mlp"}


def npz(folder: Path, **changes: Any) -> dict[str, Any]:
    arrays = {"x_train": X, "y_train": Y, "x_test": X_SERVER, "y_test": Y_SERVER} | changes
    np.savez(folder / "own.npz", **arrays)
    return {"dataset": "npz", "data_file": str(folder / "own.npz")}


def csv(folder: Path) -> dict[str, Any]:
    for name, rows, labels in (("clients", X, Y), ("server", X_SERVER, Y_SERVER)):
        lines = [",".join([*map(repr, map(float, row)), str(label)]) for row, label in zip(rows, labels, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return {
        "dataset": "csv",
        "data_file": str(folder / "clients.csv"),
        "server_file": str(folder / "server.csv"),
    }


def tuple_of_eight() -> list[Any]:
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
    parts = {client: TensorDataset(x[client::4], y[client::4]) for client in range(4)}
    loaders = {client: DataLoader(part, batch_size=4, shuffle=True) for client, part in parts.items()}
    server = DataLoader(TensorDataset(torch.tensor(X_SERVER, dtype=torch.float32), torch.tensor(Y_SERVER)), 8)
    return [60, 20, None, server, dict.fromkeys(parts, 15), loaders, dict(loaders), 3]


def source() -> Source:
    return Source("mine", X, Y, X_SERVER, None, ["a", "b", "c"], [str(row) for row in range(20)])


def client_inputs(dataset: TransductiveDataset) -> Tensor:
    return torch.cat([inputs for client in dataset[5].values() for inputs, _ in client])


def expected(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    deviation = X.std(axis=0)
    return np.where(deviation > 0, (rows - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1), 0)


@pytest.mark.parametrize("kind", ["npz", "csv", "loader of a Source", "loader of FedML's tuple"])
def test_table_is_standardized_over_the_clients(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("a_users_loaders")
    vars(module).update(source=source, eight=tuple_of_eight)
    monkeypatch.setitem(sys.modules, "a_users_loaders", module)
    keys = {
        "npz": lambda: npz(tmp_path),
        "csv": lambda: csv(tmp_path),
        "loader of a Source": lambda: {"loader": "a_users_loaders:source"},
        "loader of FedML's tuple": lambda: {"loader": "a_users_loaders:eight"},
    }[kind]()
    dataset = load(small_settings(**CLIENTS, **keys))
    theirs = client_inputs(dataset)
    torch.testing.assert_close(theirs.mean(dim=0), torch.zeros(4), atol=1e-3, rtol=0)
    torch.testing.assert_close(theirs.std(dim=0, correction=0), torch.tensor([1.0, 1, 0, 1]), atol=1e-3, rtol=0)
    # The constant feature of the clients has another value at the server, from which nothing could be learnt.
    np.testing.assert_allclose(dataset.server_inputs.numpy(), expected(X_SERVER), atol=2e-3)
    raw = load(small_settings(**CLIENTS, **keys, standardize=False))
    np.testing.assert_allclose(raw.server_inputs.numpy(), X_SERVER, rtol=1e-6)
    assert raw.preprocessing.standardizer is None


def test_images_are_standardized_only_on_request(tmp_path: Path) -> None:
    digits = load(small_settings())
    assert digits.preprocessing.standardizer is None
    assert (digits.server_inputs.min(), digits.server_inputs.max()) == (-1, 1)
    standardized = load(small_settings(standardize=True))
    assert standardized.preprocessing.standardizer is not None
    assert client_inputs(standardized).std(dim=0, correction=0).max() == pytest.approx(1, abs=1e-4)
    texts = npz(tmp_path, x_train=Y[:, None], x_test=Y_SERVER[:, None], alphabet=np.array("abc"))
    assert not load(small_settings(**CLIENTS, **texts)).server_inputs.is_floating_point()
    with pytest.raises(UserError, match="standardize is true but the samples are indices"):
        load(small_settings(**CLIENTS, **texts, standardize=True))


def test_standardization_is_independent_of_labels(tmp_path: Path) -> None:
    before = load(small_settings(**CLIENTS, **npz(tmp_path)))
    after = load(small_settings(**CLIENTS, **npz(tmp_path, y_test=Y_SERVER[::-1], y_train=(Y + 1) % 3)))
    assert torch.equal(before.server_inputs, after.server_inputs)


def test_privacy_standardizes_by_server_inputs(tmp_path: Path) -> None:
    keys = {**CLIENTS, **npz(tmp_path), "clip": 1.0, "sigma": 0.1}
    dataset = load(small_settings(**keys))
    torch.testing.assert_close(dataset.server_inputs.mean(dim=0), torch.zeros(4), atol=1e-3, rtol=0)
    silo = load_for_rank(small_settings(**keys, training_type="cross_silo"), 1)
    np.testing.assert_array_equal(silo[5][0].inputs, dataset[5][0].inputs[dataset[5][0].indices])


def test_standardization_is_equal_for_every_party(tmp_path: Path) -> None:
    settings = small_settings(**CLIENTS, **csv(tmp_path))
    whole, server = load(settings), load_for_rank(settings, 0)
    assert isinstance(server, TransductiveDataset)
    assert torch.equal(server.server_inputs, whole.server_inputs)
    assert server.preprocessing.to_json() == whole.preprocessing.to_json()
    assert whole.preprocessing.features == ["a", "b", "c", "d"]
    for client in range(4):
        silo, shard = load_for_rank(settings, client + 1)[5][client], whole[5][client]
        assert torch.equal(silo.inputs, shard.inputs[shard.indices])


def test_preprocessing_json_round_trip() -> None:
    scale = Standardizer.fit([torch.tensor(X[:30]), torch.tensor(X[30:])])
    np.testing.assert_allclose(scale.deviation, X.std(axis=0), rtol=1e-9)
    again = Preprocessing.from_json(Preprocessing("numbers", scale).to_json(), (4,)).standardizer
    assert again is not None
    assert torch.equal(again(torch.tensor(X_SERVER)), scale(torch.tensor(X_SERVER)))


def test_grey_uint8_images_become_one_channel_in_minus_one_to_one() -> None:
    images = np.array([[[0, 51], [102, 255]]], dtype=np.uint8)
    tensor = to_tensor(images)
    assert tensor.dtype == torch.float32
    assert tensor.shape == (1, 1, 2, 2)
    assert torch.allclose(tensor, torch.tensor([[[[-1.0, -0.6], [-0.2, 1.0]]]]))


def test_colour_uint8_images_become_channels_first() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 3), dtype=np.uint8)
    tensor = to_tensor(images)
    assert tensor.shape == (2, 3, 5, 6)
    assert tensor.is_contiguous()
    assert tensor[1, 2, 4, 0].item() == pytest.approx(images[1, 4, 0, 2] / 127.5 - 1, abs=1e-6)


def test_float_arrays_keep_their_values() -> None:
    rows = np.array([[0.25, -7.0], [1e-3, 300.0]])
    assert torch.equal(to_tensor(rows), torch.tensor(rows, dtype=torch.float32))
    images = np.random.default_rng(0).random((2, 4, 4))
    assert torch.equal(to_tensor(images), torch.tensor(images, dtype=torch.float32).unsqueeze(1))


def test_other_numbers_become_float32() -> None:
    for kind in (np.int64, np.int16, np.uint16, bool, np.dtype(">i4"), np.float16):
        tensor = to_tensor(np.array([[0, 1], [1, 1]]).astype(kind))
        assert tensor.dtype == torch.float32, kind
        assert tensor.tolist() == [[0, 1], [1, 1]], kind


def test_uint8_rows_are_not_pixels() -> None:
    assert to_tensor(np.array([[0, 255]], dtype=np.uint8)).tolist() == [[0, 255]]


def test_channel_axis_is_detected() -> None:
    for kind, shape, expected in (
        (np.float32, (2, 8, 8, 3), (2, 3, 8, 8)),
        (np.float32, (2, 3, 8, 8), (2, 3, 8, 8)),
        (np.float32, (2, 16, 8, 8), (2, 16, 8, 8)),
        (np.uint8, (2, 8, 8, 1), (2, 1, 8, 8)),
        (np.uint8, (2, 3, 8, 8), (2, 3, 8, 8)),
        (np.uint8, (2, 8, 9, 2), (2, 2, 8, 9)),
        (np.uint8, (2, 3, 4, 3), (2, 3, 3, 4)),
        (np.float32, (2, 2, 3, 4, 5), (2, 2, 3, 4, 5)),
    ):
        assert to_tensor(np.zeros(shape, kind)).shape == expected, f"{kind.__name__} of {shape}"


def test_to_tensor_copies_the_array() -> None:
    array = np.ones((2, 3), dtype=np.float32)
    array.flags.writeable = False
    to_tensor(array).zero_()
    assert array.all()


def test_tokens_become_int64() -> None:
    tensor = to_tensor(np.array([[3, 79]], dtype=np.uint8), tokens=True)
    assert tensor.dtype == torch.int64
    assert tensor.tolist() == [[3, 79]]


def test_colour_conversion_needs_one_copy() -> None:
    images = np.zeros((64, 32, 32, 3), dtype=np.uint8)
    assert to_tensor(images).untyped_storage().nbytes() == images.size * 4
