"""Labels that the server has of some of its own samples: `data_args.labels_file`, or `label(..., y_server=...)`.

They have nothing to do with the labels in a `SealedEvaluator`: these may be used for training, those never.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import DataSettings
from ..errors import UserError
from .formatting import escape, escape_formula, format_list, quote, unescape_formula
from .sources.csv_columns import is_missing
from .sources.csv_files import read_rows
from .sources.files import file_problem

if TYPE_CHECKING:
    from .dataset import TransductiveDataset

#: The file of a run directory with the known labels.
GIVEN_LABELS = "given_labels.csv"
#: The columns of a file of labels: one of the first two and `label` are needed.
INDEX, ID, LABEL, REASON = "index", "id", "label", "reason"
#: The reason of `mrtf ask --random`: such labels are a random subset of the samples.
RANDOM = "random"
#: Besides the usual marks of a missing value, where it is no class.
_NO_LABEL = "-1"


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """The known labels among those of M samples.

    Attributes:
        labels: the class of each sample, [M]; -1 where it is not known.
        is_random: whether the sample was drawn at random, [M], so that an accuracy can be estimated from it.
        has_reasons: whether the file says which samples were drawn at random; else all count as such.
    """

    labels: Tensor
    is_random: Tensor
    has_reasons: bool = False

    @classmethod
    def from_array(cls, labels: npt.NDArray[np.int64]) -> KnownLabels | None:
        """Of classes [M], -1 where not known; None where none is."""
        known = torch.from_numpy(labels).long()
        return cls(known, known >= 0) if bool((known >= 0).any()) else None

    @property
    def is_known(self) -> Tensor:
        """Which samples have a label, [M]."""
        return self.labels >= 0

    @property
    def count(self) -> int:
        """How many samples have a label."""
        return int(self.is_known.sum())

    @property
    def digest(self) -> str:
        """Identifies these labels."""
        return hashlib.sha256(torch.cat([self.labels, self.is_random.long()]).numpy().tobytes()).hexdigest()[:16]

    def anchor(self, probabilities: Tensor) -> Tensor:
        """The probabilities [M, C] with 1 for the known label of each sample that has one.

        >>> KnownLabels.from_array(np.array([-1, 0])).anchor(torch.tensor([[0.2, 0.8], [0.3, 0.7]]))
        tensor([[0.2000, 0.8000],
                [1.0000, 0.0000]])
        """
        anchored, known = probabilities.clone(), self.is_known.to(probabilities.device)
        labels = self.labels.to(probabilities.device)[known]
        anchored[known] = torch.nn.functional.one_hot(labels, probabilities.shape[1]).to(probabilities.dtype)
        return anchored

    def to_csv(self, ids: Sequence[str], class_names: Sequence[str]) -> str:
        """As a file that `read_labels_file` reads."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([INDEX, ID, LABEL, *([REASON] if self.has_reasons else [])])
        for index in self.is_known.nonzero().flatten().tolist():
            reason = [RANDOM if self.is_random[index] else "other"] if self.has_reasons else []
            name = escape_formula(class_names[int(self.labels[index])])
            writer.writerow([index, escape_formula(ids[index]), name, *reason])
        return text.getvalue()


def attach_labels_file(dataset: TransductiveDataset, settings: DataSettings) -> None:
    """Read `labels_file` into the dataset, unless that was done before.

    With `holdout` other samples replace the server's, so that its labels do not apply.
    """
    if settings.labels_file is None or dataset.known_labels is not None or settings.holdout is not None:
        return
    path = Path(os.path.expanduser(settings.labels_file))
    dataset.known_labels = read_labels_file(path, dataset.ids, dataset.class_names)


def read_labels_file(path: Path, ids: Sequence[str], class_names: Sequence[str]) -> KnownLabels | None:
    """The labels in a CSV file with the columns `id` or `index`, `label`, and perhaps `reason`; None if it has none.

    A row whose label is empty is ignored, so that what `mrtf ask` writes can be filled in as far as one likes. With a
    column `reason`, only rows with the reason `random` count as drawn at random.

    Args:
        path: of the file.
        ids: of the server's samples.
        class_names: all classes.
    """
    if not path.is_file():
        raise UserError(f"data_args.labels_file {str(path)!r} {file_problem(path)}; correct the path")
    positions: dict[str, int] = {}
    duplicates = set()
    for position, name in enumerate(ids):
        if positions.setdefault(name, position) != position:
            duplicates.add(name)
    classes = {name: index for index, name in enumerate(class_names)}
    labels = np.full(len(ids), -1, dtype=np.int64)
    is_random, has_reasons = np.zeros(len(ids), dtype=bool), False
    for line, _, cells in read_rows(path, DataSettings(), "labels_file"):
        row = dict(cells)
        place = f"data_args.labels_file {str(path)!r}, line {line}"
        if LABEL not in row or not (ID in row or INDEX in row):
            raise UserError(
                f"{place}: the file needs the columns {LABEL!r} and {ID!r} or {INDEX!r}, and has {format_list(row)}; "
                "name them so"
            )
        has_reasons = REASON in row
        label = _class_of(row[LABEL], classes, place)
        if label is None:
            continue
        position = _position_of(row, ids, positions, duplicates, place)
        if labels[position] not in (-1, label):
            raise UserError(f"{place}: the sample {quote(ids[position])} has another label above; keep one of them")
        labels[position] = label
        is_random[position] = not has_reasons or row[REASON].strip().lower() == RANDOM
    if (labels < 0).all():
        return None
    return KnownLabels(torch.from_numpy(labels), torch.from_numpy(is_random), has_reasons)


def _class_of(cell: str, classes: Mapping[str, int], place: str) -> int | None:
    name = escape(unescape_formula(cell.strip()))
    if name in classes:
        return classes[name]
    if is_missing(name, number=True) or name == _NO_LABEL:
        return None
    raise UserError(f"{place}: {quote(name)} is none of the classes ({format_list(classes)}); correct it or empty it")


def _position_of(
    row: Mapping[str, str], ids: Sequence[str], positions: Mapping[str, int], duplicates: set[str], place: str
) -> int:
    name = escape(unescape_formula(row[ID].strip())) if row.get(ID) else None
    if not row.get(INDEX):
        if name is None or name not in positions:
            raise UserError(f"{place}: the server has no sample of the id {quote(name or '')}; correct it")
        if name in duplicates:
            raise UserError(f"{place}: several samples have the id {quote(name)}; give their {INDEX!r} instead")
        return positions[name]
    index = row[INDEX].strip()
    if not index.isdecimal() or int(index) >= len(ids):
        raise UserError(f"{place}: {INDEX} {quote(index)} is none of 0 to {len(ids) - 1}; correct it")
    if name is not None and ids[int(index)] != name:
        raise UserError(
            f"{place}: the sample of {INDEX} {index} has the id {quote(ids[int(index)])} and not {quote(name)}; use "
            "the file of the same server samples"
        )
    return int(index)
