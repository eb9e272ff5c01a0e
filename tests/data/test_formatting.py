"""Escaped names of any bytes and letters, in predictions.csv and back."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mrtf_fedml.config import DataSettings, RunSettings, TrainSettings
from mrtf_fedml.data import Source, TransductiveDataset, load
from mrtf_fedml.data.formatting import escape, escape_formula, escape_markdown, quote, unescape, unescape_formula
from mrtf_fedml.errors import UserError
from mrtf_fedml.training.run_directory import RunDirectory
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
def test_escape_gives_one_line_and_unescape_restores_it(text: str) -> None:
    written = escape(text)
    assert unescape(written) == text
    assert len(written.encode().decode().splitlines()) <= 1
    assert "\0" not in written


@FEW
@given(st.binary(max_size=20))
def test_unescape_restores_every_file_name(name: bytes) -> None:
    assert os.fsencode(unescape(escape(os.fsdecode(name)))) == name


def test_escape_keeps_printable_strings() -> None:
    for text in ("café 1.png", "C:\\scans\\1.png", "\u3000\u202f", "日本", *FORMULAS):
        assert escape(text) == text
    assert escape("C:\\x41") == "C:\\x5cx41"
    assert len(quote("a" * 10**6)) < 100


def ids_from_predictions(folder: Path, dataset: TransductiveDataset) -> list[str]:
    """The ids of predictions.csv, written as a run writes it."""
    scores = torch.zeros(len(dataset.server_inputs), dataset.class_num)
    (folder / "run").mkdir(exist_ok=True)
    directory = RunDirectory(folder / "run")
    directory.write_predictions(scores, dataset.ids, dataset.class_names)
    with (folder / "run/predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["index"] for row in rows] == [str(number) for number in range(len(rows))]
    # Tools without support for quotes count lines.
    assert len((folder / "run/predictions.csv").read_text().splitlines()) == len(rows) + 1
    return [unescape_formula(row["id"]) for row in rows]


def test_escape_formula_makes_no_cell_that_a_spreadsheet_executes_and_is_reversible() -> None:
    texts = ["=HYPERLINK(1)", "+1+1", "-1", "-a", "@SUM(A1)", "'=1", "''@", "'quoted'", "-1.5", "+", "1-1", ""]
    cells = [escape_formula(text) for text in texts]
    assert [cell for cell in cells if cell[:1] in tuple("=+-@")] == ["-1", "-1.5"], "numbers stay as they are"
    assert len(set(cells)) == len(texts)
    assert [unescape_formula(cell) for cell in cells] == texts


def test_escape_markdown_leaves_no_html_link_image_or_emphasis() -> None:
    escaped = escape_markdown("<img src=x onerror=alert(1)> ![a](http://b) **c** `d` &lt; www.e.f")
    unescaped = re.findall(r"(?<!\\)[<>\[\]*`&_]", escaped)
    assert unescaped == []
    assert "http\\://" in escaped
    assert "www\\.e" in escaped


def load_dataset(**data: Any) -> TransductiveDataset:
    settings = DataSettings(**{"partition_method": "iid", **data})
    return load(RunSettings(data=settings, train=TrainSettings(client_num_in_total=2)))


def write_server_folder(folder: Path) -> None:
    folder.mkdir()
    for number, name in enumerate(BYTES):
        write_image(folder / "image.png", random_images(8, 6, seed=number))
        os.rename(os.fsencode(folder / "image.png"), os.path.join(os.fsencode(folder), name))


def test_image_files_of_any_name_keep_their_ids(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_image(tmp_path / "clients" / name / "1.png", random_images(8, 6))
    # A class is a folder, whose name may be as odd.
    os.rename(tmp_path / "clients/dog", os.path.join(os.fsencode(tmp_path / "clients"), b"do\xdf\n"))
    write_server_folder(tmp_path / "server")
    dataset = load_dataset(dataset="images", data_file=str(tmp_path / "clients"), server_file=str(tmp_path / "server"))
    assert dataset.class_names == ["cat", "do\\xdf\\x0a"]
    assert sorted(os.fsencode(unescape(name)) for name in ids_from_predictions(tmp_path, dataset)) == sorted(BYTES)


def test_server_images_of_any_name_keep_their_ids(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_server_folder(tmp_path / "server")
    dataset = load_dataset(
        dataset="mnist",
        data_cache_dir=str(tmp_path),
        server_dataset="images",
        server_file=str(tmp_path / "server"),
    )
    assert sorted(os.fsencode(unescape(name)) for name in ids_from_predictions(tmp_path, dataset)) == sorted(BYTES)


def test_server_folders_of_escaped_classes_give_labels(tmp_path: Path) -> None:
    x = random_images(4, 8, 6)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=[0, 1, 0, 1], x_test=x, class_names=["cat", "a\nb"])
    for name in ("cat", "a\nb"):
        write_image(tmp_path / "server" / name / "1.png", random_images(8, 6, seed=len(name)))
    files = {"data_file": str(tmp_path / "own.npz"), "server_file": str(tmp_path / "server")}
    dataset = load_dataset(dataset="npz", server_dataset="images", **files)
    assert sorted(ids_from_predictions(tmp_path, dataset)) == ["a\\x0ab/1.png", "cat/1.png"]
    assert dataset.evaluator is not None


ODD = ["a\0b", "two\nlines", "\ud800", *FORMULAS]


def test_npz_ids_are_escaped(tmp_path: Path) -> None:
    x = np.zeros((len(ODD), 2), np.float32)
    y = np.arange(len(ODD)) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, ids=np.array(ODD))
    dataset = load_dataset(dataset="npz", data_file=str(tmp_path / "own.npz"))
    assert [unescape(name) for name in ids_from_predictions(tmp_path, dataset)] == ODD
    # Bytes that are no UTF-8 are kept apart, where they were once all the same sign.
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:2], ids=np.array([b"\xe9", b"\xe8"]))
    dataset = load_dataset(dataset="npz", data_file=str(tmp_path / "own.npz"))
    assert ids_from_predictions(tmp_path, dataset) == ["\\xe9", "\\xe8"]


def test_csv_ids_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text("x,label\n1,a\n2,b\n")
    with (tmp_path / "server.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["x", "id"], *([1, name] for name in ["two\r\nlines", "a\x85b", *FORMULAS])])
    files = {"data_file": str(tmp_path / "clients.csv"), "server_file": str(tmp_path / "server.csv")}
    dataset = load_dataset(dataset="csv", **files)
    # A formula is what a spreadsheet makes of an id; the id is the user's, and stays what it was.
    assert ids_from_predictions(tmp_path, dataset) == ["two\\x0d\\x0alines", "a\\u0085b", *FORMULAS]


def test_leaf_ids_are_escaped(tmp_path: Path) -> None:
    text = "Now is the winter of our discontent Made glorious summer by this sun of York; And all"
    speech = [text[start : start + 80] for start in range(4)], list(text[80:84])
    for part in ("train", "test"):
        write_leaf(tmp_path, part, 0, {"KING\n\ud800": speech})
        # The same role continues in a second file.
        write_leaf(tmp_path, part, 1, {"KING\n\ud800": speech})
    dataset = load_dataset(dataset="shakespeare", data_cache_dir=str(tmp_path))
    assert ids_from_predictions(tmp_path, dataset) == [f"KING\\x0a\\ud800:{number}" for number in range(8)]


def test_user_constructed_source_ids_are_escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import mrtf_fedml.data.loader as loader

    x = np.zeros((len(ODD), 2), np.float32)
    source = Source("mine", x, np.arange(len(ODD)) % 2, x, None, ["a", "b\r"], list(ODD))
    monkeypatch.setattr(loader, "import_object", lambda name, key: lambda: source)
    dataset = load_dataset(loader="mine:load")
    assert [unescape(name) for name in ids_from_predictions(tmp_path, dataset)] == ODD
    assert dataset.class_names == ["a", "b\\x0d"]


def test_one_long_id_does_not_enlarge_others(tmp_path: Path) -> None:
    """As an array of texts, 3000 ids with one of 10000 letters, the longest there may be, would take 120 MB."""
    import tracemalloc

    (tmp_path / "clients.csv").write_text("x,label\n1,a\n2,b\n")
    (tmp_path / "server.csv").write_text("x,id\n" + f"1,{'n' * 10_000}\n" + "1,short\n" * 3000)
    files = {"data_file": str(tmp_path / "clients.csv"), "server_file": str(tmp_path / "server.csv")}
    tracemalloc.start()
    try:
        assert len(load_dataset(dataset="csv", **files).ids) == 3001
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    (tmp_path / "server.csv").write_text("x,id\n" + f"1,{'n' * 10_001}\n")
    with pytest.raises(UserError, match="of 10001 characters"):
        load_dataset(dataset="csv", **files)
