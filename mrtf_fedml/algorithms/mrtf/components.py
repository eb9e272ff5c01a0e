"""What all components of MrTF share: their settings, what they know of a round, and their memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...config import MrTFSettings
from ...config.user_code import import_object
from ...errors import UserError, suggest_name
from ...refinery.ensemble import relative_loss
from ...refinery.row_blocks import rows_per_block
from ...refinery.teachers import Teachers, disagreement, teacher_blocks
from ..server_context import ModelPredictions
from ..types import Memory
from .client_validation import ValidationSummary

#: In the server's memory, MrTF's own entries have this prefix; the others are the base's.
PREFIX = "refinery/"


@dataclass(frozen=True)
class RoundContext:
    """What a component knows of the round.

    Attributes:
        round: t.
        train_loss: the clients' mean local loss.
        classes: C.
        predictions: logits of the round's models on the server's samples.
        disagreement: D, the fraction of pairs of local models that predict different classes.
        temperature: tau of Eq. 6.
        block_rows: samples per block; 0 means all at once.
        targets: the targets before those of the student alone, [M, C]; None while they are made.
        validation: the clients' validation results; None where clients do not validate.
        base_keeps_client_state: whether the base's clients keep state between rounds, whose fit to the broadcast
            weights is not measured.
    """

    round: int
    train_loss: float
    classes: int
    predictions: ModelPredictions
    disagreement: float
    temperature: float
    block_rows: int = 0
    targets: Tensor | None = None
    validation: ValidationSummary | None = None
    base_keeps_client_state: bool = False

    @classmethod
    def of(
        cls,
        settings: MrTFSettings,
        predictions: ModelPredictions,
        train_loss: float,
        round_index: int = 0,
        base_keeps_client_state: bool = False,
    ) -> RoundContext:
        """The context before the targets are made; its blocks of rows fit into `refine_memory_mb`."""
        clients, rows, classes = predictions.local.shape
        width = 0 if predictions.features is None else predictions.features.shape[1]
        return cls(
            round=round_index,
            train_loss=train_loss,
            classes=classes,
            predictions=predictions,
            disagreement=disagreement(predictions.predicted),
            temperature=settings.temperature,
            block_rows=rows_per_block(settings.refine_memory_mb, clients, rows, classes, width),
            base_keeps_client_state=base_keeps_client_state,
        )

    @property
    def relative_loss(self) -> float:
        """The mean local loss divided by log C, in [0, 1]: 1 while the clients have learnt nothing."""
        return relative_loss(self.train_loss, self.classes)

    def local_teachers(self) -> Iterator[Teachers]:
        """The local models' predictions, in blocks of rows."""
        return teacher_blocks(self.predictions.local, self.temperature, self.block_rows)

    def global_teachers(self) -> Iterator[Teachers | None]:
        """The initial and the aggregated model's predictions, in the same blocks; None where they do not teach."""
        if self.predictions.initial is None:
            return repeat(None)
        both = torch.stack([self.predictions.initial, self.predictions.aggregated])
        return teacher_blocks(both, self.temperature, self.block_rows)


@dataclass(frozen=True)
class RoundTargets:
    """The distillation targets of a round, [M, C] each.

    Attributes:
        ensemble: before clustering (Eq. 10).
        targets: after clustering and the transforms.
        student: what the student follows.
        local_weight: u_t.
    """

    ensemble: Tensor
    targets: Tensor
    student: Tensor
    local_weight: float


class Component:
    """A part of MrTF that a setting names. It is built once per process and keeps nothing on the object.

    What it needs in the next round goes into `memory`, a dict of its own that each method receives: tensors, or values
    that JSON can represent. It is saved with the server's state, so that a resumed run continues with it.
    """

    def __init__(self, settings: MrTFSettings) -> None:
        self.settings = settings


_Kind = TypeVar("_Kind", bound=Component)


def build_component(
    name: str, key: str, kind: type[_Kind], known: Mapping[str, type[_Kind]], settings: MrTFSettings
) -> _Kind:
    """The component that a key of `mrtf_args` names: one of ours, or `package.module:Class`."""
    if ":" not in name:
        if name not in known:
            raise UserError(
                f"mrtf_args.{key} is {name!r}; {suggest_name(name, list(known))} (package.module:Class names one of "
                "your own)"
            )
        return known[name](settings)
    component = import_object(name, f"mrtf_args.{key}")
    if not (isinstance(component, type) and issubclass(component, kind)):
        raise UserError(f"mrtf_args.{key} {name!r} is no {kind.__name__}; derive the class from {kind.__name__}")
    return component(settings)


class ComponentMemory:
    """The components' memories during one round, one dict per name.

    >>> memory = ComponentMemory({"refinery/prior/counts": [1], "variate": 2})
    >>> memory["prior"]["rounds"] = 1
    >>> memory.flatten()
    {'refinery/prior/counts': [1], 'refinery/prior/rounds': 1}
    """

    def __init__(self, memory: Memory) -> None:
        self._by_name: dict[str, dict[str, Any]] = {}
        for key, value in memory.items():
            if key.startswith(PREFIX):
                name, _, entry = key[len(PREFIX) :].partition("/")
                self[name][entry] = value

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._by_name.setdefault(name, {})

    def flatten(self) -> dict[str, Any]:
        """The entries of the server's memory."""
        return {
            f"{PREFIX}{name}/{entry}": value
            for name, memory in self._by_name.items()
            for entry, value in memory.items()
        }
