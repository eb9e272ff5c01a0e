"""FadingScaffold: Scaffold's control variates while they help, FedAvg's clients in the end.

Ours; what it fades is Scaffold's (Karimireddy et al., ICML 2020). Where a client's steps reach a point at which its
gradient only balances the correction, the new variate is the old one: c_k = g = c_k - c. So what is wrong in a variate
stays in it, round after round. In short runs that does no harm, and the variates gain much; in long ones they kept
clients from fitting their samples, and fell below FedAvg, in one scene far below (docs/evidence.md).
"""

from __future__ import annotations

from typing import ClassVar

from pydantic.dataclasses import dataclass

from ..settings.kinds import VALIDATED, Positive
from .exchange import ServerState, Weights
from .registry import register_algorithm
from .scaffold import Scaffold, ScaffoldSettings


@dataclass(frozen=True, config=VALIDATED)
class FadingScaffoldSettings(ScaffoldSettings):
    """Scaffold's keys, and how fast the correction fades."""

    #: After so many rounds the correction counts half, after twice as many a quarter.
    scaffold_half_life: Positive = 20.0


@register_algorithm
class FadingScaffold(Scaffold):
    """Clients step along g + a_t (c - c_k), a_t = 2^(-t / H): Scaffold's step in round 0, FedAvg's in the end."""

    name: ClassVar[str] = "FadingScaffold"
    Settings = FadingScaffoldSettings
    own: FadingScaffoldSettings

    def for_client(self, state: ServerState, client: int) -> Weights:
        """The correction a_t (c - c_k); a client's new variate is what its own gradients were, whatever was added."""
        share = 0.5 ** (state.round / self.own.scaffold_half_life)
        return {name: share * value for name, value in super().for_client(state, client).items()}
