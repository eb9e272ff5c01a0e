"""How much of a round's refining lies in memory at once (`refine_memory_mb`); the bytes of the answer are the same.

What grows with M samples: the K teachers' logits, the doubles in which they are made into targets, and the features.
The doubles are made of some rows at a time, which costs nothing; what then still does not fit lies in a file.

Counted are these, and the few arrays [M, C] that a round keeps; not the server's inputs, nor the models, nor what a
model needs for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from ..errors import UserError
from .clusters import PART_BYTES
from .stored_rows import StoredRows
from .teachers import votes_of

#: Makes room for rows and columns of a dtype on a device: a tensor, or what is written and read like one.
Allocate = Callable[[int, int, torch.dtype, torch.device], "Tensor | StoredRows"]

_MEGABYTE = 2**20
_DOUBLE = 8
#: Doubles [M, C] that live at once beside the teachers: the ensemble, what balances and smooths it, the targets.
_KEPT = 5
#: Doubles per teacher, row and class that live at once while targets are made: logits, probabilities, what weighs them.
_WORKING = 6
#: Rows at once are a multiple of this, and at least this many.
_ROWS = 1024
#: Copies of a part of the features, as doubles, while it is clustered.
_COPIES = 4


@dataclass(frozen=True)
class Room:
    """How one round is to lie in memory.

    Attributes:
        rows: of which targets are made at once; 0 means all.
        stores_logits: whether the teachers' logits lie in a file.
        megabytes: `refine_memory_mb`; None means as many as it likes.
        working: bytes that making the targets takes.
        left: bytes for that, for features, and afterwards for clustering these.
    """

    rows: int = 0
    stores_logits: bool = False
    megabytes: int | None = None
    working: int = 0
    left: int = 0

    def allocate(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor | StoredRows:
        """Where features [rows, columns] go."""
        clustering = _COPIES * min(PART_BYTES, rows * columns * _DOUBLE)
        if self.megabytes is not None and clustering > self.left:
            raise _too_little(self.megabytes, clustering - self.left, f"{rows} rows of {columns} features")
        # The doubles of the targets are gone when features are clustered.
        if self.megabytes is None or rows * columns * dtype.itemsize + max(clustering, self.working) <= self.left:
            return torch.empty(rows, columns, dtype=dtype, device=device)
        return StoredRows(rows, columns, dtype)


class StoredLogits:
    """The logits [K, M, C] of K models, in a file: read by the model, or some rows of all."""

    def __init__(self, models: int, rows: int, classes: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = torch.Size((models, rows, classes))
        self.dtype, self.device = dtype, device
        self._rows = StoredRows(models * rows, classes, dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def dim(self) -> int:
        """K, M and C."""
        return 3

    def put(self, model: int, logits: Tensor) -> None:
        """Those of one model, [M, C]."""
        self._rows[model * self.shape[1] : (model + 1) * self.shape[1]] = logits

    def of_model(self, model: int) -> Tensor:
        """[1, M, C]."""
        rows = self._rows[model * self.shape[1] : (model + 1) * self.shape[1]]
        return rows.unsqueeze(0).to(self.device)

    def of_rows(self, start: int, stop: int) -> Tensor:
        """[K, stop - start, C]."""
        first = (model * self.shape[1] for model in range(len(self)))
        return torch.stack([self._rows[at + start : at + stop] for at in first]).to(self.device)


def room_for(megabytes: int | None, models: int, rows: int, classes: int, std_rows: int, clusters: bool) -> Room:
    """How a round lies in memory whose refining may take so many megabytes; None means as many as it likes.

    Args:
        megabytes: `refine_memory_mb`.
        models: K, the local models.
        rows: M, or M * T.
        classes: C.
        std_rows: rows that share a std, which are not to be parted; 0 means all.
        clusters: whether there are features.

    >>> room_for(None, 10, 10_000, 10, 0, True)
    Room(rows=0, stores_logits=False, megabytes=None, working=0, left=0)
    >>> room_for(200, 10, 100_000, 10, 0, False).rows
    20480
    """
    if megabytes is None:
        return Room()
    per_row = (models + 2) * classes * _DOUBLE * _WORKING
    kept = rows * classes * _DOUBLE * _KEPT
    logits = (models + 2) * rows * classes * 4
    least_rows = min(rows, -(-_ROWS // std_rows) * std_rows if std_rows else _ROWS)
    least, allowed = kept + least_rows * per_row, megabytes * _MEGABYTE
    if least > allowed:
        raise _too_little(megabytes, least - allowed, f"{rows} rows of {classes} classes")
    # How wide the features are is not known yet: rather the logits in a file than too little for clustering.
    stores_logits = max(least, kept + clusters * _COPIES * PART_BYTES) + logits > allowed
    left = allowed - kept - (0 if stores_logits else logits)
    # Features, where there are any, are to have the larger part.
    at_once = max(least_rows, (left // 4 if clusters else left) // per_row // least_rows * least_rows)
    working = min(at_once, rows) * per_row
    return Room(0 if at_once >= rows else at_once, stores_logits, megabytes, working, left)


def _too_little(megabytes: int, missing: int, what: str) -> UserError:
    return UserError(
        f"mrtf_args.refine_memory_mb is {megabytes}, but refining {what} takes "
        f"{megabytes + -(-missing // _MEGABYTE)} at least; raise it, or leave it out"
    )


def held(first: Tensor, others: Iterator[Tensor], models: int, stored: bool) -> tuple[Tensor | StoredLogits, Tensor]:
    """The logits [K, M, C] of K models from those of each, [M, C]: a tensor, or in a file. And their votes, [K, M]."""
    rows, classes = first.shape
    logits: Tensor | StoredLogits
    if stored:
        logits = StoredLogits(models, rows, classes, first.dtype, first.device)
    else:
        logits = first.new_empty(models, rows, classes)
    votes = []
    for model, own in enumerate(chain([first], others)):
        if isinstance(logits, Tensor):
            logits[model] = own
        else:
            logits.put(model, own)
        votes.append(votes_of(own.unsqueeze(0)))
    return logits, torch.cat(votes)
