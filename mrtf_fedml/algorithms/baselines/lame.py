"""LAME, applied once to FedAvg's last predictions: a control for refining in every round.

Boudiaf, Mueller, Ben Ayed, Bertinetto: "Parameter-free Online Test-time Adaptation", CVPR 2022. The model
stays FedAvg's; only its predictions are corrected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from ...config.types import VALIDATED, NonNegativeFloat, PositiveInt
from ...models.state_dict import load_weights
from ...refinery.clustering import unit_rows
from ..base import Algorithm
from ..registry import register_algorithm
from ..server_context import ServerContext
from ..types import ClientUpdate, RoundReport, ServerState, Weights

_CORRECTED = "lame/answer"
#: Lower bound of probabilities before the logarithm, so that neighbours can change any prediction.
MIN_PROBABILITY = 1e-10
#: The fixed point is reached when no entry of z changes by more than this.
TOLERANCE = 1e-6


@dataclass(frozen=True, config=VALIDATED)
class LAMESettings:
    """LAME's keys in `lame_args`."""

    #: Neighbours of a sample in feature space.
    lame_neighbours: PositiveInt = 5
    #: Weight of one neighbour. 0 means no effect: FedAvg.
    lame_strength: NonNegativeFloat = 1.0
    #: Maximum number of steps; the iteration ends earlier if it converges.
    lame_steps: PositiveInt = 100


@register_algorithm
class LAME(Algorithm):
    """FedAvg; after the last round its predictions are smoothed over neighbours in feature space.

    A run that is resumed with more rounds continues as FedAvg and is corrected after its new last round.
    """

    name: ClassVar[str] = "LAME"
    Settings = LAMESettings
    transductive: ClassVar[bool] = True
    hparams: LAMESettings

    def server_update(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, server: ServerContext
    ) -> tuple[ServerState, RoundReport]:
        """FedAvg's; in the last round also the corrected predictions, which are stored in the state."""
        after, report = super().server_update(state, updates, aggregated, server)
        memory = {name: value for name, value in after.memory.items() if name != _CORRECTED}
        if not self._is_done(after):
            return replace(after, memory=memory), report
        plain, corrected = self._predict_corrected(after, server)
        report = RoundReport(predictions={"aggregated": plain, "lame": corrected})
        return replace(after, memory={**memory, _CORRECTED: corrected.cpu()}), report

    def prediction_logits(self, state: ServerState, server: ServerContext) -> Tensor:
        """The logarithms of the corrected probabilities after the last round, FedAvg's logits before."""
        if not self._is_done(state):
            return super().prediction_logits(state, server)
        stored = state.memory.get(_CORRECTED)
        # Nothing is stored if the last round had no valid update.
        corrected = self._predict_corrected(state, server)[1] if stored is None else stored
        return corrected.to(server.inputs.device).clamp_min(MIN_PROBABILITY).log()

    def _is_done(self, state: ServerState) -> bool:
        return state.round >= self.settings.train.comm_round and self.hparams.lame_strength > 0

    def _predict_corrected(self, state: ServerState, server: ServerContext) -> tuple[Tensor, Tensor]:
        """The model's logits, and the corrected probabilities."""
        load_weights(server.model, state.prediction_weights)
        logits, features = server.predict(server.model, features=True)
        assert features is not None
        corrected = propagate_labels(
            logits.softmax(dim=1),
            features,
            neighbours=self.hparams.lame_neighbours,
            strength=self.hparams.lame_strength,
            steps=self.hparams.lame_steps,
        )
        return logits, corrected


def propagate_labels(
    probabilities: Tensor,
    features: Tensor,
    *,
    neighbours: int = 5,
    strength: float = 1.0,
    steps: int = 100,
    block: int = 256,
) -> Tensor:
    """z(x) <- softmax over c of log q(c|x) + s * sum over x' in N(x) of z(c|x'), until it converges; z starts at q.

    It decreases sum_x KL(z(x), q(x)) - s sum_x sum over x' in N(x) of z(x)·z(x'): stay near the predictions, and agree
    with the neighbours. A sample without neighbours keeps its q.

    Args:
        probabilities: q, [M, C].
        features: h, [M, D].
        neighbours: k, at most M - 1.
        strength: s, the weight of one neighbour. 1 is LAME's; 0 changes nothing.
        steps: maximum number of steps.
        block: number of rows of the M x M similarities in memory at once.

    Returns:
        z, [M, C], in the dtype of `probabilities`; rows sum to one.

    >>> q = torch.tensor([[0.6, 0.4], [0.1, 0.9], [0.1, 0.9]])
    >>> together = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1]])
    >>> propagate_labels(q, together, neighbours=2).argmax(dim=1)
    tensor([1, 1, 1])
    """
    if probabilities.dim() != 2 or features.dim() != 2 or len(probabilities) != len(features):
        raise ValueError(
            f"probabilities [M, C] and features [M, D] must be of the same M samples, not "
            f"{tuple(probabilities.shape)} and {tuple(features.shape)}"
        )
    near = nearest_neighbours(features, neighbours, block)
    if strength == 0.0 or near.shape[1] == 0:
        return probabilities
    own = probabilities.double().clamp_min(MIN_PROBABILITY).log()
    current = torch.softmax(own, dim=1)
    for _ in range(steps):
        neighbour_sum = torch.zeros_like(current)
        # One neighbour at a time: [M, k, C] would be k times as large.
        for column in near.T:
            neighbour_sum += current[column]
        updated = torch.softmax(own + strength * neighbour_sum, dim=1)
        has_converged = bool((updated - current).abs().max() <= TOLERANCE)
        current = updated
        if has_converged:
            break
    return current.to(probabilities.dtype)


def nearest_neighbours(features: Tensor, neighbours: int, block: int = 256) -> Tensor:
    """N(x): for each sample the indices of the `neighbours` others whose features have the largest cosine with its own.

    For unit vectors the largest cosine is the smallest Euclidean distance.

    Args:
        features: h, [M, D]; a zero vector has cosine 0 with every other.
        neighbours: k, at most M - 1.
        block: rows of similarities in memory at once.

    Returns:
        indices, [M, k], the nearest first.

    >>> nearest_neighbours(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]]), neighbours=1).T
    tensor([[2, 2, 0]])
    """
    samples = len(features)
    unit = unit_rows(features)
    neighbours_of = []
    for rows in torch.arange(samples, device=features.device).split(block):
        cosines = unit[rows] @ unit.T
        cosines[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        neighbours_of.append(cosines.topk(min(neighbours, samples - 1), dim=1).indices)
    return torch.cat(neighbours_of)
