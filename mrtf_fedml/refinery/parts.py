"""Models' logits, all rows at once or part by part: what a row becomes depends on no other row, but for the scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from ..settings import MrTFSettings
from .memory import StoredLogits
from .teachers import Scale, batch_normalised_probabilities, scale_of


class Models(NamedTuple):
    """Logits of some models for all rows or some, [K, M, C], as doubles; and in the latter case the scale of all."""

    logits: Tensor
    scale: Scale | None = None

    def probabilities(self, settings: MrTFSettings, std_rows: int) -> Tensor:
        """Eq. 6, [K, M, C]."""
        return batch_normalised_probabilities(self.logits, settings.temperature, std_rows, self.scale)


def in_parts(local: Tensor | StoredLogits, taught: Tensor | None, rows: int) -> Iterator[tuple[Models, Models | None]]:
    """The local and the global models, so many rows at a time; 0 takes all at once."""
    total = local.shape[1]
    if not 0 < rows < total:
        whole = local if isinstance(local, Tensor) else local.of_rows(0, total)
        yield Models(whole.double()), None if taught is None else Models(taught.double())
        return
    one_by_one = local.split(1) if isinstance(local, Tensor) else map(local.of_model, range(len(local)))
    scale = scale_of(logits.double() for logits in one_by_one)
    of_globals = None if taught is None else scale_of(logits.double() for logits in taught.split(1))
    for start in range(0, total, rows):
        stop = min(start + rows, total)
        part = local[:, start:stop] if isinstance(local, Tensor) else local.of_rows(start, stop)
        global_part = None if taught is None else Models(taught[:, start:stop].double(), of_globals)
        yield Models(part.double(), scale), global_part
