"""LAME, once, on FedAvg's last answer: a control that asks whether refining every round is needed.

Boudiaf, Mueller, Ben Ayed, Bertinetto: "Parameter-free Online Test-time Adaptation", CVPR 2022. The mathematics is in
`refinery/propagation.py`. No weight is changed: the model stays FedAvg's, and its answer is corrected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from ..models.weights import load
from ..refinery.propagation import LEAST_PROBABILITY, propagated
from ..settings.kinds import VALIDATED, Count, NonNegative
from .base import Algorithm
from .bench import ServerBench
from .exchange import ClientUpdate, RoundReport, ServerState, Weights
from .registry import register_algorithm

_ANSWER = "lame/answer"


@dataclass(frozen=True, config=VALIDATED)
class LAMESettings:
    """LAME's keys in `lame_args`."""

    #: Neighbours of a sample in feature space.
    lame_neighbours: Count = 5
    #: The weight of one neighbour's say. 0 means no effect: FedAvg again.
    lame_strength: NonNegative = 1.0
    #: Steps at most; it ends earlier where nothing moves any more.
    lame_steps: Count = 100


@register_algorithm
class LAME(Algorithm):
    """FedAvg; after the last round its predictions are brought together within neighbourhoods of h(x).

    A run that is resumed with more rounds goes on as FedAvg, and is corrected after its new last round.
    """

    name: ClassVar[str] = "LAME"
    Settings = LAMESettings
    transductive: ClassVar[bool] = True
    own: LAMESettings

    def finish_round(
        self, state: ServerState, updates: list[ClientUpdate], aggregated: Weights, bench: ServerBench
    ) -> tuple[ServerState, RoundReport]:
        """FedAvg's; in the last round also the corrected answer, which the state keeps."""
        after, report = super().finish_round(state, updates, aggregated, bench)
        memory = {name: value for name, value in after.memory.items() if name != _ANSWER}
        if not self._is_done(after):
            return replace(after, memory=memory), report
        plain, corrected = self._corrected(after, bench)
        report = RoundReport(predictions={"aggregated": plain, "lame": corrected})
        return replace(after, memory={**memory, _ANSWER: corrected.cpu()}), report

    def answer_logits(self, state: ServerState, bench: ServerBench) -> Tensor:
        """The logarithms of the corrected probabilities after the last round, FedAvg's logits before."""
        if not self._is_done(state):
            return super().answer_logits(state, bench)
        kept = state.memory.get(_ANSWER)
        # Nothing is kept where nobody's update could be used in the last round.
        corrected = self._corrected(state, bench)[1] if kept is None else kept
        return corrected.to(bench.inputs.device).clamp_min(LEAST_PROBABILITY).log()

    def _is_done(self, state: ServerState) -> bool:
        return state.round >= self.settings.train.comm_round and self.own.lame_strength > 0

    def _corrected(self, state: ServerState, bench: ServerBench) -> tuple[Tensor, Tensor]:
        """What the model says, and what LAME makes of it."""
        load(bench.model, state.answer)
        logits, features = bench.read(bench.model, True)
        assert features is not None
        corrected = propagated(
            logits.softmax(dim=1),
            features,
            neighbours=self.own.lame_neighbours,
            strength=self.own.lame_strength,
            steps=self.own.lame_steps,
        )
        return logits, corrected
