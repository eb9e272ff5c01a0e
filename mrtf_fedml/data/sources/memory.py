"""How much memory a data file may ask for: told from its header, before any of it is given.

A few bytes can ask for any number of them: zeros pack a thousand to one, and a header may promise what is not
there. `data_args.max_memory_mb` bounds what one file or folder unpacks to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UserError
from ...settings import DataSettings

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Memory:
    """The bytes that the samples of one file or folder may take."""

    megabytes: int

    @property
    def most(self) -> int:
        """The same in bytes."""
        return self.megabytes * MEGABYTE

    def check(self, needed: int, origin: str) -> None:
        """A `UserError` where `origin` needs more bytes than it may have."""
        if needed > self.most:
            raise UserError(
                f"{origin} needs {math.ceil(needed / MEGABYTE)} MB of memory, more than data_args.max_memory_mb "
                f"({self.megabytes}) allows; raise it if you trust the file and the machine has so much"
            )

    def check_array(self, shape: Sequence[int], itemsize: int, origin: str) -> None:
        """The same for an array of this shape; entries of no bytes count too, since each becomes an object."""
        self.check(math.prod(shape) * max(itemsize, 1), origin)


def memory_of(settings: DataSettings) -> Memory:
    """What the settings allow."""
    return Memory(settings.max_memory_mb)
