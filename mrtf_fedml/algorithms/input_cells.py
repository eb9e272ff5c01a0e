"""Cells of the input space in which server and clients count their samples, to compare them without sharing them.

The server divides the space several times, each time by the nearest of the centres that k-means finds among its own
samples, and once more by the distance to their mean; and each feature by itself, at its quartiles. Clients receive
centres and quartiles and report how many samples of each class they have in each cell. Distances between wide samples
are those after a random projection to few dimensions, and a centre is the mean of several samples, so that no sample
can be read. The features are the columns of a table, or of an encoder's output; of images, sequences and very wide
tables they are the dimensions of the projection. `diagnostics/unknown_classes.py` draws the conclusions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..rng import torch_generator

#: Fewer samples of the server cannot be divided.
MIN_SAMPLES = 20
#: How often the space is divided, and into how many cells, each of about so many of the server's samples.
_DIVISIONS, _MAX_CELLS, _SAMPLES_PER_CELL = 8, 40, 8
#: A centre is the mean of at least so many samples.
_LEAST_SAMPLES = 5
#: Bins of the distance to the mean.
_RADIUS_BINS = 10
#: Bins of each feature: the quarters of the server's samples.
FEATURE_BINS = 4
#: Rows of up to so many numbers, the width of a ResNet-50's features, are a table; others are images or very wide.
_MAX_COLUMNS = 2048
#: The columns of a table are counted up to so many times classes, for which a client sends 2 MB.
_MAX_COLUMNS_TIMES_CLASSES = 2**16
#: Wider samples are projected to so many dimensions; those of a table to more, up to one per so many of the server's
#: samples: with more dimensions few samples are nearer to their own centres and mean than the clients' are.
_WIDTH, _MAX_TABLE_WIDTH, _SAMPLES_PER_DIMENSION = 64, 256, 4
#: k-means uses at most so many samples, and so many steps.
_FIT_SAMPLES, _STEPS = 2000, 15
#: Samples that are assigned at once.
_BLOCK = 2048
#: Features with a smaller deviation are constant, and keep their scale.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class InputCells:
    """Divisions of the input space into at most K cells; samples have D dimensions after the projection, F features.

    Attributes:
        mean: of the server's samples, [D].
        scale: their standard deviation, [D].
        centres: of the cells of each division, on the unit sphere around the mean, [divisions, K, D]; where a division
            has fewer than K cells, its first centre is repeated, and no sample is assigned to the repetitions.
        radii: the limits of the bins of the distance to the mean, which are one more division.
        quartiles: of each feature, [F, 3]; F is the width of the samples, or D if the projection is counted.
    """

    mean: Tensor
    scale: Tensor
    centres: Tensor
    radii: Tensor
    quartiles: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """The number of divisions, and of cells in each."""
        divisions, cells, _ = self.centres.shape
        return divisions + 1, max(cells, _RADIUS_BINS)

    @classmethod
    def fit(cls, inputs: Tensor, classes: int) -> InputCells | None:
        """From the server's samples [M, ...], for so many classes; None for too few samples or samples of indices."""
        if len(inputs) < MIN_SAMPLES or not inputs.is_floating_point():
            return None
        rows = torch.linspace(0, len(inputs) - 1, min(len(inputs), _FIT_SAMPLES), dtype=torch.float64).long()
        chosen = _to_rows(inputs[rows.to(inputs.device)])
        is_table = inputs.ndim == 2 and chosen.shape[1] <= _MAX_COLUMNS
        width = max(_WIDTH, min(_MAX_TABLE_WIDTH, len(inputs) // _SAMPLES_PER_DIMENSION)) if is_table else _WIDTH
        points = _project(chosen, width)
        deviation = points.std(dim=0, unbiased=False)
        # In single precision, as they are sent.
        mean, scale = points.mean(dim=0).float(), torch.where(deviation > _CONSTANT, deviation, 1.0).float()
        # Not of images: the quartiles of the pixels would be images.
        features = chosen if is_table and chosen.shape[1] * classes <= _MAX_COLUMNS_TIMES_CLASSES else points
        quartiles = features.quantile(_inner_limits(FEATURE_BINS), dim=0).T.contiguous()
        norms, directions = _polar(points, mean, scale)
        cells = min(_MAX_CELLS, max(2, len(inputs) // _SAMPLES_PER_CELL))
        generator = torch_generator(0, "input cells")
        centres = torch.stack([_find_centres(directions, cells, generator) for _ in range(_DIVISIONS)])
        return cls(mean, scale, centres.float(), norms.quantile(_inner_limits(_RADIUS_BINS)), quartiles)

    def assign(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The cell of each sample [N, ...] in each division, [N, divisions], and the bin of each feature, [N, F]."""
        # A batch may be empty.
        blocks = [self._assign_block(block) for block in inputs.split(_BLOCK)]
        cells, bins = zip(*blocks, strict=True)
        return torch.cat(cells), torch.cat(bins)

    def _assign_block(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        rows = _to_rows(inputs)
        points = _project(rows, len(self.mean))
        norms, directions = _polar(points, self.mean, self.scale)
        nearest = [_nearest(directions, centres.double()) for centres in self.centres]
        features = rows if rows.shape[1] == len(self.quartiles) else points
        bins = torch.zeros(features.shape, dtype=torch.uint8)
        for limits in self.quartiles.T:
            bins += features > limits
        return torch.stack([*nearest, torch.bucketize(norms, self.radii)], dim=1), bins

    def count(self, data: Iterable[Any], classes: int) -> tuple[Tensor, Tensor]:
        """A client's samples by division, class and cell, [divisions, C, K], and by feature, class and bin, [F, C, 4].

        Labels that are no class do not count.
        """
        divisions, cells = self.shape
        counts = torch.zeros(divisions, classes, cells, dtype=torch.int64)
        features = torch.zeros(len(self.quartiles), classes, FEATURE_BINS, dtype=torch.int64)
        for inputs, labels in data:
            labels = labels.cpu().long()
            known = (labels >= 0) & (labels < classes)
            for table, assigned in zip((counts, features), self.assign(inputs), strict=True):
                # One number per division, class and cell.
                offsets = torch.arange(len(table)) * classes
                positions = (offsets + labels[known, None]) * table.shape[2] + assigned[known]
                table += torch.bincount(positions.flatten(), minlength=table.numel()).view(table.shape)
        return counts, features

    def to_payload(self, prefix: str) -> dict[str, Tensor]:
        """As it is sent."""
        return {prefix + each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], prefix: str) -> InputCells | None:
        """The inverse of `to_payload`; None where the payload has none."""
        names = [each.name for each in fields(cls)]
        return cls(**{name: payload[prefix + name] for name in names}) if prefix + names[0] in payload else None


def _inner_limits(bins: int) -> Tensor:
    """The quantiles that separate so many bins."""
    return torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]


def _to_rows(inputs: Tensor) -> Tensor:
    """Samples [N, ...] as rows of numbers."""
    return inputs.detach().flatten(1).cpu().double()


def _project(rows: Tensor, width: int) -> Tensor:
    """Rows [N, D]; wider ones than D by a random projection, which preserves distances approximately."""
    return rows if rows.shape[1] <= width else rows @ _projection(rows.shape[1], width)


def _polar(points: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The distances [N] and the directions [N, D] of standardised points from their mean."""
    points = (points - mean.double()) / scale.double()
    norms = points.norm(dim=1)
    return norms, points / norms.clamp_min(1e-12)[:, None]


@lru_cache(maxsize=1)
def _projection(before: int, after: int) -> Tensor:
    return torch.randn(before, after, generator=torch_generator(0, "projection of inputs")).double() / after**0.5


def _find_centres(points: Tensor, cells: int, generator: torch.Generator) -> Tensor:
    """The centres [cells, D] of k-means; those of few samples are replaced by the first."""
    centres = points[torch.randperm(len(points), generator=generator)[:cells]]
    for _ in range(_STEPS):
        nearest = _nearest(points, centres)
        sizes = torch.bincount(nearest, minlength=len(centres))
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        kept = sizes >= min(_LEAST_SAMPLES, int(sizes.max()))
        centres = (sums / sizes.clamp_min(1)[:, None])[kept]
    return torch.cat([centres, centres[:1].expand(cells - len(centres), -1)])


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    return (points @ centres.T - centres.square().sum(dim=1) / 2).argmax(dim=1)
