"""Names of any bytes and letters reach predictions.csv, and are read back as they were."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mrtf_fedml.data import Source, TransductiveDataset, load
from mrtf_fedml.data.names import original, printable, shown
from mrtf_fedml.errors import UserError
from mrtf_fedml.rounds.store import RunStore
from mrtf_fedml.settings import DataSettings, RunSettings, TrainSettings
from tests.data.sources.formats import random_images, write_image, write_leaf, write_mnist
from tests.data.sources.hostility import FEW

#: What a file's name may be on most systems: bytes that are no UTF-8, ends of lines, and formulas.
BYTES = [b"caf\xe9.png", b"two\nlines.png", b"back\rwards.png", b"\xff\xfe.png", b"tab\there.png", b"C:\\xe9.png"]
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)"]

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
#: Texts full of what looks like an escape, or nearly.
TRICKY = st.text(st.sampled_from("\\xu0a9e5cd\n\udce9\ud800\x85\u2028"), max_size=12)


@FEW
@given(ANY_TEXT | TRICKY)
def test_every_text_becomes_one_line_and_can_be_read_back(text: str) -> None:
    written = printable(text)
    assert original(written) == text
    assert len(written.encode().decode().splitlines()) <= 1
    assert "\0" not in written


@FEW
@given(st.binary(max_size=20))
def test_every_name_of_a_file_can_be_found_again(name: bytes) -> None:
    assert os.fsencode(original(printable(os.fsdecode(name)))) == name


def test_what_is_written_already_stays_as_it_is() -> None:
    for text in ("café 1.png", "C:\\scans\\1.png", "\u3000\u202f", "日本", *FORMULAS):
        assert printable(text) == text
    assert printable("C:\\x41") == "C:\\x5cx41"
    assert len(shown("a" * 10**6)) < 100


def read_back(folder: Path, dataset: TransductiveDataset) -> list[str]:
    """The ids of predictions.csv, written as a run writes it."""
    scores = torch.zeros(len(dataset.server_inputs), dataset.class_num)
    (folder / "run").mkdir(exist_ok=True)
    store = RunStore(folder / "run")
    store.write_predictions(scores, dataset.ids, dataset.class_names)
    with (folder / "run/predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["index"] for row in rows] == [str(number) for number in range(len(rows))]
    # Tools that know nothing of quotes count lines.
    assert len((folder / "run/predictions.csv").read_text().splitlines()) == len(rows) + 1
    return [row["id"] for row in rows]


def loaded(**data: Any) -> TransductiveDataset:
    settings = DataSettings(**{"partition_method": "iid", **data})
    return load(RunSettings(data=settings, train=TrainSettings(client_num_in_total=2)))


def write_server_folder(folder: Path) -> None:
    folder.mkdir()
    for number, name in enumerate(BYTES):
        write_image(folder / "image.png", random_images(8, 6, seed=number))
        os.rename(os.fsencode(folder / "image.png"), os.path.join(os.fsencode(folder), name))


def test_files_of_any_name_are_labelled_and_told_by_it(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_image(tmp_path / "clients" / name / "1.png", random_images(8, 6))
    # A class is a folder, whose name may be as odd.
    os.rename(tmp_path / "clients/dog", os.path.join(os.fsencode(tmp_path / "clients"), b"do\xdf\n"))
    write_server_folder(tmp_path / "server")
    dataset = loaded(dataset="images", data_file=str(tmp_path / "clients"), server_file=str(tmp_path / "server"))
    assert dataset.class_names == ["cat", "do\\xdf\\x0a"]
    assert sorted(os.fsencode(original(name)) for name in read_back(tmp_path, dataset)) == sorted(BYTES)


def test_so_they_are_beside_the_clients_of_a_known_dataset(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_server_folder(tmp_path / "server")
    dataset = loaded(
        dataset="mnist",
        data_cache_dir=str(tmp_path),
        server_dataset="images",
        server_file=str(tmp_path / "server"),
    )
    assert sorted(os.fsencode(original(name)) for name in read_back(tmp_path, dataset)) == sorted(BYTES)


def test_folders_of_odd_classes_still_mark_beside_a_known_dataset(tmp_path: Path) -> None:
    x = random_images(4, 8, 6)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=[0, 1, 0, 1], x_test=x, class_names=["cat", "a\nb"])
    for name in ("cat", "a\nb"):
        write_image(tmp_path / "server" / name / "1.png", random_images(8, 6, seed=len(name)))
    files = {"data_file": str(tmp_path / "own.npz"), "server_file": str(tmp_path / "server")}
    dataset = loaded(dataset="npz", server_dataset="images", **files)
    assert sorted(read_back(tmp_path, dataset)) == ["a\\x0ab/1.png", "cat/1.png"]
    assert dataset.examiner is not None


ODD = ["a\0b", "two\nlines", "\ud800", *FORMULAS]


def test_ids_of_arrays(tmp_path: Path) -> None:
    x = np.zeros((len(ODD), 2), np.float32)
    y = np.arange(len(ODD)) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, ids=np.array(ODD))
    dataset = loaded(dataset="npz", data_file=str(tmp_path / "own.npz"))
    assert [original(name) for name in read_back(tmp_path, dataset)] == ODD
    # Bytes that are no UTF-8 are kept apart, where they were once all the same sign.
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:2], ids=np.array([b"\xe9", b"\xe8"]))
    dataset = loaded(dataset="npz", data_file=str(tmp_path / "own.npz"))
    assert read_back(tmp_path, dataset) == ["\\xe9", "\\xe8"]


def test_ids_of_tables(tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text("x,label\n1,a\n2,b\n")
    with (tmp_path / "server.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["x", "id"], *([1, name] for name in ["two\r\nlines", "a\x85b", *FORMULAS])])
    files = {"data_file": str(tmp_path / "clients.csv"), "server_file": str(tmp_path / "server.csv")}
    dataset = loaded(dataset="csv", **files)
    # A formula is what a spreadsheet makes of an id; the id is the user's, and stays what it was.
    assert read_back(tmp_path, dataset) == ["two\\x0d\\x0alines", "a\\u0085b", *FORMULAS]


def test_ids_of_users(tmp_path: Path) -> None:
    text = "Now is the winter of our discontent Made glorious summer by this sun of York; And all"
    speech = [text[start : start + 80] for start in range(4)], list(text[80:84])
    for part in ("train", "test"):
        write_leaf(tmp_path, part, 0, {"KING\n\ud800": speech})
        # The same role goes on in a second file.
        write_leaf(tmp_path, part, 1, {"KING\n\ud800": speech})
    dataset = loaded(dataset="shakespeare", data_cache_dir=str(tmp_path))
    assert read_back(tmp_path, dataset) == [f"KING\\x0a\\ud800:{number}" for number in range(8)]


def test_ids_of_a_source_made_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import mrtf_fedml.data.loader as loader

    x = np.zeros((len(ODD), 2), np.float32)
    source = Source("mine", x, np.arange(len(ODD)) % 2, x, None, ["a", "b\r"], list(ODD))
    monkeypatch.setattr(loader, "named_object", lambda name, key: lambda: source)
    dataset = loaded(loader="mine:load")
    assert [original(name) for name in read_back(tmp_path, dataset)] == ODD
    assert dataset.class_names == ["a", "b\\x0d"]


def test_one_endless_id_does_not_make_all_of_them_so(tmp_path: Path) -> None:
    """As an array of texts, 3000 ids with one of 10000 letters, the longest there may be, would take 120 MB."""
    import tracemalloc

    (tmp_path / "clients.csv").write_text("x,label\n1,a\n2,b\n")
    (tmp_path / "server.csv").write_text("x,id\n" + f"1,{'n' * 10_000}\n" + "1,short\n" * 3000)
    files = {"data_file": str(tmp_path / "clients.csv"), "server_file": str(tmp_path / "server.csv")}
    tracemalloc.start()
    try:
        assert len(loaded(dataset="csv", **files).ids) == 3001
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    (tmp_path / "server.csv").write_text("x,id\n" + f"1,{'n' * 10_001}\n")
    with pytest.raises(UserError, match="of 10001 letters; give 10000 at most"):
        loaded(dataset="csv", **files)
