"""`data_args.labels_file`: labels that the server has of some of its samples."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data.known_labels import KnownLabels, attach_labels_file, read_labels_file
from mrtf_fedml.data.silo import load_for_rank
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings

IDS, NAMES = ["a", "=b", "c", "c"], ["cat", "-dog", "7"]


def read(folder: Path, text: str) -> KnownLabels | None:
    file = folder / "labels.csv"
    file.write_text(text)
    return read_labels_file(file, IDS, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "id,label\na,-dog\n=b,7\n",
        "index,label\n0,-dog\n1,7\n",
        "label;id\n-dog;a\n7;=b\n",
        "index,id,prediction,label\n0,a,cat,'-dog\n1,'=b,cat,7\n2,c,cat,\n3,c,cat,NaN\n",
        "index,label\n0,-dog\n2,-1\n3,None\n1,7\n",
    ],
)
def test_labels_are_read_by_id_or_index(tmp_path: Path, text: str) -> None:
    known = read(tmp_path, text)
    assert known is not None
    assert known.labels.tolist() == [1, 2, -1, -1]
    assert known.is_random.tolist() == [True, True, False, False]
    assert (known.count, known.has_reasons) == (2, False)


def test_reason_column_marks_labels_drawn_at_random(tmp_path: Path) -> None:
    known = read(tmp_path, "index,label,reason\n0,cat,uncertain: cat or 7\n1,7,random\n")
    assert known is not None
    assert known.has_reasons
    assert known.is_random.tolist() == [False, True, False, False]


def test_written_labels_are_read_back(tmp_path: Path) -> None:
    known = read(tmp_path, "index,label,reason\n0,cat,x\n1,-dog,random\n3,7,x\n")
    assert known is not None
    again = read(tmp_path, known.to_csv(IDS, NAMES))
    assert again is not None
    assert again.digest == known.digest
    unmarked = KnownLabels.from_array(np.array([-1, 2, 0, -1]))
    assert unmarked is not None
    read_again = read(tmp_path, unmarked.to_csv(IDS, NAMES))
    assert read_again is not None
    assert (read_again.digest, read_again.has_reasons) == (unmarked.digest, False)


def test_file_without_a_label_gives_none(tmp_path: Path) -> None:
    assert read(tmp_path, "index,label\n0,\n") is None
    assert KnownLabels.from_array(np.array([-1, -1])) is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sample,label\n0,cat\n", "sample"),
        ("id,label\nz,cat\n", "'z'"),
        ("id,label\nc,cat\n", "'c'"),
        ("index,label\n4,cat\n", "'4'"),
        ("index,label\n-1,cat\n", "'-1'"),
        ("index,id,label\n0,c,cat\n", "'a'"),
        ("index,label\n0,bird\n", "'bird'"),
        ("index,label\n0,cat\n0,7\n", "'a'"),
        ("index,label\n0\n", "line 2"),
    ],
)
def test_unusable_rows_are_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        read(tmp_path, text)


def test_missing_file_is_named(tmp_path: Path) -> None:
    settings = small_settings()
    settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, labels_file=str(tmp_path / "no")))
    with pytest.raises(UserError, match="labels_file"):
        load_for_rank(settings, None)


def test_labels_file_is_not_applied_to_a_holdout(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("index,label\n0,3\n")
    dataset = load_for_rank(small_settings(labels_file=str(file)), None)
    assert dataset.known_labels.labels[0] == 3
    dataset.known_labels = None
    attach_labels_file(dataset, DataSettings(labels_file=str(file), holdout=0.2))
    assert dataset.known_labels is None


def test_anchor_replaces_only_known_rows_and_copies() -> None:
    known = KnownLabels.from_array(np.array([-1, 1]))
    assert known is not None
    given = torch.full((2, 2), 0.5)
    assert known.anchor(given).tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert given.tolist() == [[0.5, 0.5], [0.5, 0.5]]
