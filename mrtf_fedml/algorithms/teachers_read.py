"""The teachers' logits where they are not read as models in use are: in train mode, as the authors' program does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..models.positions import rows_of_logits
from ..models.precision import computing
from ..models.train_mode import answers_alike
from ..models.weights import load
from ..phases import TEACHERS, phase
from ..refinery.distill import training
from ..settings import MrTFSettings
from .bench import ServerBench
from .exchange import ClientUpdate, Weights


def teachers_read(
    bench: ServerBench, updates: Sequence[ClientUpdate], settings: MrTFSettings, batch_size: int
) -> Mapping[int, Tensor]:
    """Logits [M, C] that need no pass of the refinery any more, by the update's place."""
    # What train mode does not change is read as ever: by ranks, in parts of a size that suits the model, compiled.
    if settings.teacher_mode == "eval" or answers_alike(bench.model):
        return bench.known_logits(updates)
    batch = settings.std_batches * batch_size
    return {place: logits_in_training(bench, update.weights, batch) for place, update in enumerate(updates)}


def logits_in_training(bench: ServerBench, weights: Weights, batch: int) -> Tensor:
    """The logits [M, C] of these weights in train mode: BatchNorm takes each batch's own statistics, dropout drops.

    Args:
        bench: the server's inputs, and the model.
        weights: the teacher's.
        batch: samples per batch, in their order; 0 means all at once. A last batch of one joins the one before it.
    """
    load(bench.model, weights)
    parts = list(bench.inputs.split(batch or len(bench.inputs)))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    precise = torch.promote_types(torch.float32, next(bench.model.parameters()).dtype)
    computed = computing(bench.precision.teachers, bench.inputs.device)
    with training(bench.model), torch.no_grad(), phase(TEACHERS), computed:
        # Copies, since the model's first layer may work in place.
        return torch.cat([rows_of_logits(bench.model(part.clone()), len(part)).to(precise) for part in parts])
