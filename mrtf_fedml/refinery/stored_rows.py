"""Rows that shall not lie in memory: they lie in a file without a name, and are read a part at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class StoredRows:
    """A matrix in a temporary file (`TMPDIR` says where), written and read by slices of rows, with the same bytes.

    >>> rows = StoredRows(3, 2, torch.float32)
    >>> rows[0:3] = torch.arange(6.0).reshape(3, 2)
    >>> [part.tolist() for part in rows.split(2)]
    [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    def __init__(self, rows: int, columns: int, dtype: torch.dtype) -> None:
        self.shape = torch.Size((rows, columns))
        self.dtype = dtype
        # Unbuffered: a part is as large as it may be, and no second copy of it is wanted.
        self._file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as the rows
        self._bytes_per_row = columns * torch.empty((), dtype=dtype).element_size()

    def __len__(self) -> int:
        return self.shape[0]

    def dim(self) -> int:
        """Of a matrix."""
        return 2

    def __setitem__(self, place: slice, values: Tensor) -> None:
        start, stop, _ = place.indices(len(self))
        if tuple(values.shape) != (stop - start, self.shape[1]):
            raise ValueError(f"rows {start} to {stop} of {self.shape[1]} columns are not {tuple(values.shape)}")
        self._file.seek(start * self._bytes_per_row)
        rest = _bytes_of(values.detach().to("cpu", self.dtype).contiguous())
        while len(rest) > 0:
            rest = rest[self._file.write(rest) :]

    def __getitem__(self, place: slice) -> Tensor:
        start, stop, _ = place.indices(len(self))
        part = torch.empty(max(0, stop - start), self.shape[1], dtype=self.dtype)
        self._file.seek(start * self._bytes_per_row)
        rest = _bytes_of(part)
        while len(rest) > 0:
            read = self._file.readinto(rest)
            if not read:
                raise ValueError(f"rows {start} to {stop} were never written")
            rest = rest[read:]
        return part

    def split(self, rows: int) -> Iterator[Tensor]:
        """Part by part, of so many rows each; the last may have fewer."""
        for start in range(0, len(self), rows):
            yield self[start : min(start + rows, len(self))]


def _bytes_of(values: Tensor) -> memoryview:
    data: Any = values.view(-1).view(torch.uint8).numpy()
    return memoryview(data)
