"""MrTF's global procedure (Sect. 4.4), its steps (1)-(5) in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..phases import TARGETS, phase
from ..settings import MrTFSettings
from .distill import distill
from .memory import held, room_for
from .rectify import faded
from .shares import tie
from .targets import distillation_targets, sharpened_targets, smoothed_targets
from .teachers import disagreement

Weights = Mapping[str, Tensor]

#: Reads the logits [M, C] and, where asked for, the features [M, D] of the model as it stands; where memory is bounded
#: it is told by `allocate` where these are to go.
Reader = Callable[..., tuple[Tensor, Any]]

#: Does what `distill` does, by whomever; gives the mean loss.
Distiller = Callable[[nn.Module, Tensor, Tensor, MrTFSettings, torch.Generator], float]


def _distilled(
    student: nn.Module, inputs: Tensor, targets: Tensor, settings: MrTFSettings, generator: torch.Generator
) -> float:
    return distill(student, inputs, targets, settings, generator).loss


@dataclass(frozen=True)
class RefinedRound:
    """What the refinery made of a round.

    Attributes:
        weights: the refined model's state dict, clones of their own.
        targets: what the student followed, before they were sharpened, [M, C]; the next round's are smoothed with them.
        ensemble: the targets before clustering, [M, C].
        aggregated_logits: those of theta_{t+1} before it was refined, [M, C].
        local_weight: u_t.
        loss: mean distillation loss over the steps; nan where there were none.
        shares: what the server's classes are thought to be, [C]; None where it is not estimated.
        votes: the class that each local model names for each sample, [K, M]; a byte each where C allows.
    """

    weights: OrderedDict[str, Tensor]
    targets: Tensor
    ensemble: Tensor
    aggregated_logits: Tensor
    local_weight: float
    loss: float
    votes: Tensor
    shares: Tensor | None = None


def refine(
    model: nn.Module,
    initial: Weights,
    local: Sequence[Weights],
    aggregated: Weights,
    inputs: Tensor,
    local_loss: float,
    settings: MrTFSettings,
    read: Reader,
    generator: torch.Generator,
    *,
    clustering: bool = True,
    std_rows: int = 0,
    previous_targets: Tensor | None = None,
    previous_shares: Tensor | None = None,
    known_logits: Mapping[int, Tensor] | None = None,
    initial_logits: Tensor | None = None,
    distil: Distiller = _distilled,
) -> RefinedRound:
    """Refine the aggregated model on the server's inputs.

    Args:
        model: one reusable model; weights are swapped in, its own are overwritten.
        initial: theta_t, what the clients started from.
        local: theta_{t,k} of the clients that answered.
        aggregated: theta_{t+1}, their average.
        inputs: the server's x, [M, ...]. Where the model answers at each of T positions, `read` gives M * T rows,
            m * T + t, and so have the targets.
        local_loss: mean over the clients of their local cross-entropy.
        settings: the switches.
        read: one pass of the model over the inputs.
        generator: draws the order of the samples in distillation.
        clustering: false in warm-up.
        std_rows: samples that share the std of Eq. 6; 0 means all.
        previous_targets: the last round's, for smoothing.
        previous_shares: of the server's classes, as the last round left them.
        known_logits: of local models that others have read already, by their place in `local`.
        initial_logits: those of theta_t, [M, C], where the last round has read them already.
        distil: lets the student follow the targets.
    """
    known = known_logits or {}
    # (1)-(2) one pass of each teacher; the aggregated model's comes last and yields the features as well.
    needs_features = settings.cluster_refinery and clustering
    own = (known[place] if place in known else _read_as(model, one, read)[0] for place, one in enumerate(local))
    first = next(own)
    rows, classes = first.shape
    room = room_for(settings.refine_memory_mb, len(local), rows, classes, std_rows, needs_features)
    local_logits, votes = held(first, own, len(local), room.stores_logits)
    if not settings.self_teaching:
        initial_logits = None
    elif initial_logits is None:
        initial_logits = _read_as(model, initial, read)[0]
    where = {} if room.megabytes is None else {"allocate": room.allocate}
    aggregated_logits, features = _read_as(model, aggregated, read, needs_features, **where)
    global_logits = None if initial_logits is None else torch.stack([initial_logits, aggregated_logits])
    # (3)-(4) rectify, and re-assign by clusters.
    with phase(TARGETS):
        unlike = disagreement(votes)
        composed = distillation_targets(
            local_logits,
            global_logits,
            features,
            local_loss,
            settings,
            std_rows,
            previous_shares,
            room.rows,
            unlike,
            tie(votes) if settings.shares_fade > 0 else 1.0,
        )
        smoothing = faded(settings.target_smoothing, unlike, settings.smoothing_fade)
        targets = smoothed_targets(composed.probabilities, previous_targets, local_loss, smoothing)
    # (5) the aggregated model, which stands in `model` since its pass, follows the targets.
    followed = sharpened_targets(targets, local_loss, settings.target_sharpness)
    loss = distil(model, inputs, followed, settings, generator)
    # Copies on the CPU, in the standard layout: the model is swapped again in the next round, and these make messages.
    standard = torch.contiguous_format
    refined = OrderedDict(
        (key, value.detach().to("cpu", copy=True, memory_format=standard)) for key, value in model.state_dict().items()
    )
    return RefinedRound(
        weights=refined,
        targets=targets,
        ensemble=composed.ensemble,
        aggregated_logits=aggregated_logits,
        local_weight=composed.local_weight,
        loss=loss,
        votes=votes,
        shares=composed.shares,
    )


def _read_as(
    model: nn.Module, weights: Weights, read: Reader, features: bool = False, **where: Any
) -> tuple[Tensor, Any]:
    model.load_state_dict(weights)
    return read(model, features, **where)
