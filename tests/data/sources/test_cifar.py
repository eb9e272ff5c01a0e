"""CIFAR from its pickles, of which only arrays and containers are read."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrtf_fedml.data import load_source, to_tensor
from mrtf_fedml.data.sources.safe_pickle import load_pickle
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import cifar_batch, settings, write_cifar10, write_cifar100_archive


def test_cifar10(tmp_path: Path) -> None:
    first, second, test = write_cifar10(tmp_path)
    source = load_source(settings(tmp_path, "cifar10"))
    assert (source.x_train.reshape(40, -1) == np.concatenate([first[b"data"], second[b"data"]])).all()
    assert source.y_train.tolist() == first[b"labels"] + second[b"labels"]
    assert (source.x_test.reshape(20, -1) == test[b"data"]).all()
    assert source.class_names[:2] == ["airplane", "automobile"]
    assert source.augments
    tensor = to_tensor(source.x_test)
    assert tensor.shape == (20, 3, 32, 32)
    # The first 1024 values are the red channel, row by row.
    assert tensor[0, 0, 0, 1].item() == pytest.approx(test[b"data"][0, 1] / 127.5 - 1, abs=1e-6)


def test_cifar10_batch_written_by_python_2(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    pixels = bytes(number % 256 for number in range(2 * 3072))
    content = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04"
        b"K\x00\x85q\x05U\x01bq\x06\x87q\x07Rq\x08(K\x01K\x02M\x00\x0c\x86q\x09cnumpy\ndtype\nq\x0a"
        b"U\x02u1q\x0bK\x00K\x01\x87q\x0cRq\x0d(K\x03U\x01|q\x0eNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<I", len(pixels)) + pixels + b"tbU\x06labels]q\x0f(K\x07K\x01eu."
    )
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    source = load_source(settings(tmp_path, "cifar10"))
    assert source.x_test.tobytes() == pixels
    assert source.y_test is not None
    assert source.y_test.tolist() == [7, 1]


def test_cifar100_from_archive(tmp_path: Path) -> None:
    contents = write_cifar100_archive(tmp_path)
    source = load_source(settings(tmp_path, "cifar100"))
    assert source.class_num == 100
    assert source.class_names[3] == "fine 3"
    assert source.y_train.tolist() == contents["train"][b"fine_labels"]
    assert (source.x_test.reshape(100, -1) == contents["test"][b"data"]).all()
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-100-python.tar.gz"]


def test_cifar100_from_folder(tmp_path: Path) -> None:
    contents = write_cifar100_archive(tmp_path / "archive")
    place = tmp_path / "cifar-100-python"
    place.mkdir()
    for name, content in contents.items():
        # With texts for keys, as Python 3 writes what it has read with latin1.
        renamed = {key.decode(): value for key, value in content.items()}
        (place / name).write_bytes(pickle.dumps(renamed))
    source = load_source(settings(tmp_path, "cifar100"))
    assert source.y_train.tolist() == contents["train"][b"fine_labels"]


class Malice:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_pickle_that_calls_a_command_is_rejected_without_running_it(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    trace = tmp_path / "it ran"
    batch = cifar_batch(20, 10, "labels") | {b"extra": Malice(f"touch '{trace}'")}
    for protocol in (0, 2, 4, 5):
        (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(batch, protocol))
        with pytest.raises(UserError, match=r"names (posix|nt)\.system"):
            load_source(settings(tmp_path, "cifar10"))
        assert not trace.exists(), f"protocol {protocol}"


@pytest.mark.parametrize(
    "hostile",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy.testing._private.utils\nrunstring\n(S'1'\nd(dtR.",
        b"c_codecs\nencode\n(S'x'\nS'zlib_codec'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0elib.npyio.load\x93.",
    ],
    ids=["eval", "a test's helper of NumPy", "a codec", "a dotted name"],
)
def test_pickle_with_other_calls_is_rejected(tmp_path: Path, hostile: bytes) -> None:
    with pytest.raises(UserError):
        load_pickle(hostile, tmp_path / "hostile")


def test_pickled_arrays_of_every_protocol_are_read(tmp_path: Path) -> None:
    content = {
        b"a": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "b": [1, (2.5, None), {"c": b"\xff\x00"}],
        "d": np.int64(7),
        "e": np.asfortranarray(np.ones((2, 3))),
    }
    for protocol in (0, 2, 3, 4, 5):
        loaded = load_pickle(pickle.dumps(content, protocol), tmp_path)
        assert loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]], f"protocol {protocol}"
        assert loaded["b"] == [1, (2.5, None), {"c": b"\xff\x00"}], f"protocol {protocol}"
        assert loaded["d"] == 7, f"protocol {protocol}"
        assert (loaded["e"] == 1).all(), f"protocol {protocol}"


def test_missing_or_damaged_cifar_files_raise(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"cifar10 is not in .* put its files into .*cifar-10-batches-py.*download: true"
    ):
        load_source(settings(tmp_path, "cifar10"))
    write_cifar10(tmp_path)
    place = tmp_path / "cifar-10-batches-py"
    whole = (place / "test_batch").read_bytes()
    no_labels = {b"data": np.zeros((3, 3072), np.uint8)}
    for content, sentence in (
        (whole[:-2000], "damaged"),
        (b"", "damaged"),
        (pickle.dumps([1, 2]), "has no entry 'data'"),
        (pickle.dumps(no_labels), "has no entry 'labels' and so no classes"),
        (pickle.dumps(no_labels | {b"labels": [1, 2]}), r"has 3 images but labels of shape \(2,\)"),
        (pickle.dumps({b"data": np.zeros((3, 50), np.uint8), b"labels": [0, 1, 2]}), "not uint8 of N, 3072"),
        (pickle.dumps(no_labels | {b"labels": [1, 2, 10]}), "y_test holds class 10"),
    ):
        (place / "test_batch").write_bytes(content)
        with pytest.raises(UserError, match=sentence):
            load_source(settings(tmp_path, "cifar10"))
    (place / "test_batch").write_bytes(whole)
    for path in place.glob("data_batch_*"):
        path.unlink()
    with pytest.raises(UserError, match="lacks data_batch_1"):
        load_source(settings(tmp_path, "cifar10"))


def test_truncated_or_foreign_archive_raises(tmp_path: Path) -> None:
    write_cifar100_archive(tmp_path)
    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(UserError, match="damaged"):
        load_source(settings(tmp_path, "cifar100"))
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../etc/passwd"), io.BytesIO(b""))
    with pytest.raises(UserError, match="lacks train"):
        load_source(settings(tmp_path, "cifar100"))
