"""How long a scene takes on one core of this machine, from one measured step of each network."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...models import create_model
from ...models.evaluation import evaluating
from ...settings import ModelSettings
from .scene import Work

#: The shape of one sample of each dataset.
_SHAPES = {"mnist": (1, 28, 28), "femnist": (1, 28, 28), "shakespeare": (80,)}
_COLOUR = (3, 32, 32)
#: Of the measured step: small, since `--list` waits for it; the whole of it where a step is mostly weights, which the
#: samples of a batch share.
_BATCH, _WHOLE_BATCH = 16, {"mlp": 64}


class Stopwatch:
    """Seconds per sample, learnt and read, of each network; measured once, as the time of the processor alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}

    def seconds(self, works: Sequence[Work]) -> float:
        """What all of the work takes, one after another."""
        total = 0.0
        for work in works:
            trained, read = self._of(work.model, _SHAPES.get(work.dataset, _COLOUR))
            total += work.trained * trained + work.read * read
        return total

    def _of(self, model: str, shape: tuple[int, ...]) -> tuple[float, float]:
        if (model, shape) not in self._known:
            self._known[model, shape] = _measured(model, shape)
        return self._known[model, shape]


def _measured(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = create_model(ModelSettings(model=name), shape, 80 if len(shape) == 1 else 10, seed=0)
        batch = _WHOLE_BATCH.get(name, _BATCH)
        inputs = torch.zeros(batch, *shape, dtype=torch.int64 if len(shape) == 1 else torch.float32)
        labels = torch.zeros(batch, dtype=torch.int64)
        # The first pass pays for what later ones find ready.
        _step(model, inputs[:2], labels[:2])
        trained = _step(model, inputs, labels)
        with evaluating(model), torch.inference_mode():
            began = time.process_time()
            model(inputs)
            read = time.process_time() - began
    finally:
        torch.set_num_threads(before)
    return trained / batch, read / batch


def _step(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    # Not the clock on the wall: others may be at work on this machine.
    began = time.process_time()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    return time.process_time() - began
