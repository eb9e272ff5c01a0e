"""Statistics of a run's labelled samples, to notice that samples which are labelled later are of another kind.

They are computed from the server's own inputs and their predicted classes: the run has compared these with the clients'
samples where it could, and no statistic of a client's samples is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data.formatting import quote
from ..data.preprocessing import Standardizer
from .shift import MIN_SAMPLES, Rows, project, subsample

#: The file of the statistics in a run directory.
REFERENCE_FILE = "reference.safetensors"

#: A feature has shifted if its mean is outside of the class means by this many deviations; a few samples need more.
_SHIFT_DEVIATIONS, _SHIFT_DEVIATIONS_OF_ONE = 1.0, 5.0
#: The quantile of the distances within the run beyond which a sample is unusual, and the fraction of unusual samples
#: beyond which the samples are of another kind, unless so many of them have at least this probability by chance.
_QUANTILE, _UNUSUAL, _CHANCE = 0.95, 0.3, 1e-3
#: A sample at this multiple of the quantile is of another kind even if it is alone.
_FAR = 3.0
#: A class with this fraction of the predictions, and this much more than in the run, is suspicious.
_COLLAPSED, _COLLAPSED_MARGIN = 0.95, 0.2
#: This fraction of the mean variance is added to every direction: smaller variances are noise.
_VARIANCE_FLOOR = 0.05
#: Below this deviation a feature is constant.
_CONSTANT = 1e-6
_MAX_NAMED = 3


@dataclass(frozen=True, eq=False)
class ReferenceStatistics:
    """Statistics of M samples with D features (wide samples are projected to fewer) in the C' predicted classes.

    Attributes:
        class_means: [C', D].
        whitening: [D, D], which gives the deviations from the class means unit variance.
        radius: the quantile of the distances of the run's samples to the nearest class mean, in the whitened space.
        feature_means: for tables, the class means of the features, [C', F]; else None.
        deviations: for tables, of the features, [F]; else None.
        class_frequencies: of all C classes, [C].
    """

    class_means: Rows
    whitening: Rows
    radius: float
    feature_means: Rows | None
    deviations: Rows | None
    class_frequencies: Rows

    @classmethod
    def fit(cls, inputs: Tensor, predicted: Tensor, classes: int) -> ReferenceStatistics | None:
        """From the preprocessed inputs [M, ...] and their predicted classes [M].

        None for too few samples, samples of indices, or several predictions per sample.
        """
        if len(inputs) < 2 * MIN_SAMPLES or not inputs.is_floating_point() or len(predicted) != len(inputs):
            return None
        rows = subsample(inputs)
        labels = subsample(predicted[:, None]).ravel().astype(np.int64)
        projected = project(rows)
        # The radius is of samples that the means and the covariance were not computed from.
        fitted, others = np.array_split(np.random.default_rng(0).permutation(len(rows)), 2)
        present = np.unique(labels[fitted])
        means = np.stack([projected[fitted][labels[fitted] == label].mean(axis=0) for label in present])
        centred = projected[fitted] - means[np.searchsorted(present, labels[fitted])]
        variances, directions = np.linalg.eigh(centred.T @ centred / len(fitted))
        floor = max(_VARIANCE_FLOOR * float(variances.mean()), 1e-12)
        whitening = directions / np.sqrt(np.maximum(variances, 0) + floor)
        distances = _distances(projected[others], means, whitening)
        is_table = inputs.ndim == 2
        every = np.unique(labels)
        return cls(
            means,
            whitening,
            float(np.quantile(distances, _QUANTILE)),
            np.stack([rows[labels == label].mean(axis=0) for label in every]) if is_table else None,
            rows.std(axis=0) if is_table else None,
            np.bincount(labels, minlength=classes) / len(labels),
        )

    def to_tensors(self) -> dict[str, Tensor]:
        """The statistics as float64 tensors, for a file."""
        values = {
            "class_means": self.class_means,
            "whitening": self.whitening,
            "radius": np.array([self.radius]),
            "feature_means": self.feature_means,
            "deviations": self.deviations,
            "class_frequencies": self.class_frequencies,
        }
        return {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in values.items() if v is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor] | None) -> ReferenceStatistics | None:
        """The inverse of `to_tensors`; None if there are no tensors, or not these."""
        if tensors is None or not {"class_means", "whitening", "radius", "class_frequencies"} <= tensors.keys():
            return None
        arrays = {name: tensor.double().numpy() for name, tensor in tensors.items()}
        return cls(
            arrays["class_means"],
            arrays["whitening"],
            float(arrays["radius"][0]),
            arrays.get("feature_means"),
            arrays.get("deviations"),
            arrays["class_frequencies"],
        )

    def find_differences(
        self,
        inputs: Tensor,
        predicted: Tensor,
        class_names: Sequence[str],
        features: Sequence[str] | None = None,
        standardizer: Standardizer | None = None,
    ) -> list[str]:
        """One warning per difference between new preprocessed inputs [N, ...] and the run's samples.

        Args:
            inputs: preprocessed as the run's.
            predicted: their predicted classes, [N].
            class_names: C of them.
            features: the names of a table's features.
            standardizer: that of the run, to show values in their own units.
        """
        if len(predicted) != len(inputs):
            return []
        rows = subsample(inputs)
        width = rows.shape[1]
        features = features if features is not None and len(features) == width else None
        standardizer = standardizer if standardizer is not None and standardizer.mean.numel() == width else None
        shifted = self._shifted_features(rows, features, standardizer)
        return [
            warning
            for warning in (
                shifted,
                None if shifted else self._unusual_samples(rows),
                self._collapse(predicted, class_names),
            )
            if warning is not None
        ]

    def _shifted_features(
        self, rows: Rows, features: Sequence[str] | None, standardizer: Standardizer | None
    ) -> str | None:
        if self.feature_means is None or self.deviations is None:
            return None
        mean, low, high = rows.mean(axis=0), self.feature_means.min(axis=0), self.feature_means.max(axis=0)
        # A feature that is constant in the run has no scale, so the scale of the new samples counts too.
        deviations = np.maximum(self.deviations, rows.std(axis=0))
        excess = np.where(
            deviations > _CONSTANT, np.maximum(low - mean, mean - high) / np.maximum(deviations, _CONSTANT), 0.0
        )
        limit = max(_SHIFT_DEVIATIONS, _SHIFT_DEVIATIONS_OF_ONE / math.sqrt(len(rows)))
        order = [int(index) for index in np.argsort(-excess) if excess[index] > limit]
        if not order:
            return None

        def show(index: int) -> str:
            scale, centre = 1.0, 0.0
            if standardizer is not None:
                scale, centre = (
                    float(standardizer.deviation.flatten()[index]),
                    float(standardizer.mean.flatten()[index]),
                )
            values = [value * scale + centre for value in (mean[index], low[index], high[index])]
            name = quote(features[index]) if features else f"feature {index}"
            return f"{name} (mean {values[0]:.4g}; class means {values[1]:.4g} to {values[2]:.4g} in the run)"

        more = f" and {len(order) - _MAX_NAMED} more" if len(order) > _MAX_NAMED else ""
        return (
            f"these samples differ from those of the run in {', '.join(map(show, order[:_MAX_NAMED]))}{more}: check "
            "units, scale and the order of columns, and do not use these labels unchecked"
        )

    def _unusual_samples(self, rows: Rows) -> str | None:
        # Imported here, since it takes a second.
        from scipy.stats import binom

        distances = _distances(project(rows), self.class_means, self.whitening)
        unusual, far = float((distances > self.radius).mean()), float((distances > _FAR * self.radius).mean())
        expected = 1 - _QUANTILE
        is_chance = binom.sf(round(unusual * len(rows)) - 1, len(rows), expected) > _CHANCE
        if far <= 0.5 and (unusual < _UNUSUAL or is_chance):
            return None
        return (
            f"{unusual:.0%} of these samples are unlike those of the run ({expected:.0%} is usual): they are of "
            "another kind or of other classes; check scale, units and how they were recorded, and do not use these "
            "labels unchecked"
        )

    def _collapse(self, predicted: Tensor, class_names: Sequence[str]) -> str | None:
        frequencies = np.bincount(predicted.cpu().numpy(), minlength=len(class_names)) / len(predicted)
        label = int(frequencies.argmax())
        if len(predicted) < MIN_SAMPLES or frequencies[label] < _COLLAPSED:
            return None
        in_run = float(self.class_frequencies[label])
        if frequencies[label] < in_run + _COLLAPSED_MARGIN:
            return None
        return (
            f"{frequencies[label]:.0%} of these samples are labelled {class_names[label]!r}, but {in_run:.0%} of the "
            "run's; unless you expect that, do not use these labels"
        )


def _distances(rows: Rows, means: Rows, whitening: Rows) -> Rows:
    """The distance of each row to the nearest class mean, in the whitened space."""
    points, centres = rows @ whitening, means @ whitening
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)[None] - 2 * points @ centres.T
    distances: Rows = np.sqrt(np.maximum(squares.min(axis=1), 0))
    return distances
