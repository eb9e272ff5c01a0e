"""How a sample becomes what a model sees: the kind of its numbers, and the scale of a table's features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import UserError
from ..settings import RunSettings
from .shards import Batch, TensorShard
from .sources import Source
from .sources.csv_columns import Columns
from .tensors import to_tensor

Kind = Literal["pixels", "numbers", "tokens"]

#: A feature that varies less than this share of its size is constant: the rest is rounding of float32.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Scale:
    """Brings each feature to mean 0 and deviation 1: (x - mean) / deviation.

    Attributes:
        mean: of each feature, in the shape of a sample, float64.
        deviation: the same; 0 for a feature that is constant, which becomes 0: nothing can be learnt from it, and a
            server's sample may have any value there.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, batches: Iterable[Tensor]) -> Scale:
        """From samples [N, ...], batch by batch; in two passes over them, since one loses small deviations.

        >>> scale = Scale.of([torch.tensor([[1.0, 7.0], [3.0, 7.0]])])
        >>> scale(torch.tensor([[5.0, 9.0]])).tolist()
        [[3.0, 0.0]]
        """
        kept = [batch.double() for batch in batches]
        count = sum(len(batch) for batch in kept)
        mean = torch.stack([batch.sum(dim=0) for batch in kept]).sum(dim=0) / count
        squares = torch.stack([((batch - mean) ** 2).sum(dim=0) for batch in kept]).sum(dim=0)
        deviation = (squares / count).sqrt()
        return cls(mean, torch.where(deviation > _CONSTANT * mean.abs(), deviation, torch.zeros_like(deviation)))

    def __call__(self, inputs: Tensor) -> Tensor:
        """The inputs [N, ...] scaled, as new float32."""
        varies = self.deviation > 0
        divisor = torch.where(varies, self.deviation, torch.ones_like(self.deviation))
        scaled = (inputs.double() - self.mean) / divisor
        return torch.where(varies, scaled, torch.zeros_like(scaled)).float()


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """What was done to the samples of a run, so that more of the same kind can be treated alike.

    Attributes:
        kind: `pixels` are uint8 images brought to [-1, 1]; `numbers` keep their values; `tokens` are indices.
        scale: what standardised them; None where nothing did.
        features: the names of a table's features, in the model's order; None where they have none.
        columns: how the columns of a file become those; None where there was no such file.
    """

    kind: Kind = "numbers"
    scale: Scale | None = None
    features: list[str] | None = field(default=None, repr=False)
    columns: Columns | None = field(default=None, repr=False)

    def facts(self) -> dict[str, Any]:
        """The same in what JSON can say."""
        numbers = None if self.scale is None else (self.scale.mean.flatten(), self.scale.deviation.flatten())
        mean, deviation = (None, None) if numbers is None else (part.tolist() for part in numbers)
        return {
            "kind": self.kind,
            "mean": mean,
            "deviation": deviation,
            "features": self.features,
            "columns": None if self.columns is None else self.columns.facts(),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], input_shape: tuple[int, ...]) -> Preprocessing:
        """What `facts` has said."""
        scale = None
        if facts["mean"] is not None:
            parts = [torch.tensor(facts[key], dtype=torch.float64) for key in ("mean", "deviation")]
            scale = Scale(*(part.reshape(input_shape) for part in parts))
        columns = facts.get("columns")
        return cls(facts["kind"], scale, facts["features"], None if columns is None else Columns(**columns))


def is_standardised(settings: RunSettings, inputs: Tensor, kind: Kind) -> bool:
    """Whether such samples [N, ...] are standardised: what was asked for; else tables are, and images are not."""
    wanted = settings.data.standardize
    if settings.common.training_type == "cross_device":
        # The devices read their own samples, which nobody here can change.
        return False
    if wanted == "auto":
        return kind == "numbers" and inputs.ndim == 2 and inputs.is_floating_point()
    if wanted and (kind == "tokens" or not inputs.is_floating_point()):
        raise UserError("data_args.standardize is true but the samples are indices of letters or words; leave it out")
    return wanted


def preprocessing_of(
    source: Source, parts: list[npt.NDArray[np.int64]], settings: RunSettings, server_inputs: Callable[[], Tensor]
) -> Preprocessing:
    """What is done to the samples of a source; a scale is that of the clients' samples which take part.

    It depends on neither the order of the clients nor any label, so every party that has the source finds the same.
    Where privacy is promised (`dp_args`) the server's inputs decide: exact sums over clients are in no budget.
    """
    kind = kind_of(source)
    if not is_standardised(settings, to_tensor(source.x_train[:1], source.tokens), kind):
        return Preprocessing(kind, None, source.features, source.columns)
    rows = np.sort(np.concatenate(parts))
    decisive = server_inputs() if settings.privacy.active else to_tensor(source.x_train[rows])
    return Preprocessing(kind, Scale.of([decisive]), source.features, source.columns)


def kind_of(source: Source) -> Kind:
    """What the numbers of a source are; `to_tensor` treats them so."""
    if source.tokens:
        return "tokens"
    return "pixels" if source.x_train.dtype == np.uint8 and source.x_train.ndim >= 3 else "numbers"


class ScaledLoader:
    """A user's own loader of (x, y) batches, whose x are scaled as they are drawn."""

    def __init__(self, batches: Any, scale: Scale) -> None:
        self.batches = batches
        self.scale = scale
        self.batch_size = getattr(batches, "batch_size", None)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        for inputs, labels in self.batches:
            yield self.scale(torch.as_tensor(inputs)), torch.as_tensor(labels)


def scaled_entry(entry: Any, scale: Scale) -> Any:
    """A client's data, scaled: a shard of ours as a new shard, anything else as it is drawn; None stays None."""
    if entry is None:
        return None
    return entry.scaled(scale) if isinstance(entry, TensorShard) else ScaledLoader(entry, scale)
