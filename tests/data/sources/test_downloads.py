"""Downloads, from a local server."""

from __future__ import annotations

import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from torchvision import datasets

from mrtf_fedml.data import load_source
from mrtf_fedml.data.sources.downloads import list_downloads
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import settings, write_mnist


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which it is served."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_missing_files_are_downloaded_from_torchvisions_addresses(
    tmp_path: Path, mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = mirror
    arrays = write_mnist(folder, zipped=True)
    sums = [(path.name, hashlib.md5(path.read_bytes()).hexdigest()) for path in folder.iterdir()]
    # The first mirror is down, as the first one often is.
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/", address])
    monkeypatch.setattr(datasets.MNIST, "resources", sums)
    cache = tmp_path / "cache"
    source = load_source(settings(cache, "mnist", download=True))
    assert (source.x_train == arrays["train-images-idx3-ubyte"]).all()
    assert sorted(path.name for path in (cache / "MNIST/raw").iterdir()) == sorted(name for name, _ in sums)
    assert socket.getdefaulttimeout() is None


def test_download_with_wrong_checksum_is_discarded(
    tmp_path: Path, mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = mirror
    (folder / "usps.bz2").write_bytes(b"something else")
    wrong = {part: [address + "usps.bz2", "usps.bz2", "0" * 32] for part in ("train", "test")}
    monkeypatch.setattr(datasets.USPS, "split_list", wrong)
    cache = tmp_path / "cache"
    with pytest.raises(UserError, match=r"usps.bz2 could not be downloaded .*; dataset usps needs usps.bz2"):
        load_source(settings(cache, "usps", download=True))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("dataset", "named"),
    [
        ("mnist", "train-images-idx3-ubyte"),
        ("fashion_mnist", "train-images-idx3-ubyte"),
        ("cifar10", "cifar-10-python.tar.gz"),
        ("cifar100", "cifar-100-python.tar.gz"),
        ("svhn", "train_32x32.mat"),
        ("usps", "usps.bz2"),
    ],
)
def test_failed_download_error_names_missing_files_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, named: str
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    with pytest.raises(UserError) as caught:
        load_source(settings(tmp_path, dataset, download=True))
    sentence = str(caught.value)
    assert "could not be downloaded" in sentence
    assert f"dataset {dataset} needs {named}" in sentence
    assert str(tmp_path) in sentence
    assert "\n" not in sentence


def test_existing_files_are_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path)
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    assert len(load_source(settings(tmp_path, "mnist", download=True)).x_train) == 30


def test_unwritable_download_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        load_source(settings(tmp_path / "file", "svhn", download=True))


def test_only_torchvision_datasets_can_be_downloaded() -> None:
    assert list_downloads("femnist") == []
    assert {Path(file.path).name for file in list_downloads("svhn")} == {"train_32x32.mat", "test_32x32.mat"}
