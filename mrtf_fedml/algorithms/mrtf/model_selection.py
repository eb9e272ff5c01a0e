"""Which weights are broadcast to the next clients (`mrtf_args.broadcast`), and which predict (`predict_with`).

There are two candidates: the refined model, and the base's. The paper selects the refined model for both.
"""

from __future__ import annotations

from typing import Any

from ...models.group import with_member
from ...models.state_dict import mix
from ...refinery.class_prior import informativeness
from ..types import Weights
from .components import Component, RoundContext

#: What the clients must gain by the refined model, beyond chance, for it to be broadcast on a base whose clients keep
#: state. The state belongs to the base's weights: other weights must gain more than they disturb (docs/lab/choices.md).
_LEAST_GAIN_WITH_CLIENT_STATE = 0.1
#: eta of the average over the rounds (docs/lab/choices.md).
_DECAY = 32


class ModelSelection(Component):
    """Selects weights between the refined model and the base's.

    A complete one: the refined model once the clients have learnt something, the base's before. In a file `mine.py`, it
    is `broadcast: mine:OnceLearnt` or `predict_with: mine:OnceLearnt`.

    >>> class OnceLearnt(ModelSelection):
    ...     def refined_share(self, context, memory):
    ...         memory["learnt"] = memory.get("learnt", False) or context.relative_loss < 0.5
    ...         return 1.0 if memory["learnt"] else 0.0
    >>> from types import SimpleNamespace
    >>> context = SimpleNamespace(relative_loss=0.9)
    >>> OnceLearnt(None).select({"w": 1}, {"w": 0}, context, memory={})
    {'w': 0}
    """

    def refined_share(self, context: RoundContext, memory: dict[str, Any]) -> float:
        """The share s of the refined model in what is selected, in [0, 1].

        Args:
            context: what is known of the round.
            memory: kept between rounds.
        """
        raise NotImplementedError

    def select(self, refined: Weights, base: Weights, context: RoundContext, memory: dict[str, Any]) -> Weights:
        """Mix both: s * refined + (1 - s) * base. A rule that is no mix overrides this.

        Args:
            refined: the refined model's weights.
            base: the weights that the base would broadcast, or predict with.
            context: what is known of the round.
            memory: kept between rounds.
        """
        return interpolate(refined, base, self.refined_share(context, memory))


def interpolate(refined: Weights, base: Weights, share: float) -> Weights:
    """Share * refined + (1 - share) * base; with a share of 0 or 1 that very object."""
    if share <= 0:
        return base
    return refined if share >= 1 else mix(refined, base, share)


def average_rounds(newest: Weights, average: Weights, round_index: int, decay: int = _DECAY) -> Weights:
    """The average over the rounds with polynomial decay (Shamir and Zhang, ICML 2013), after the round of this index.

    P_t = a_t theta_t + (1 - a_t) P_{t-1}, a_t = (1 + eta) / (t + eta), t counted from 1. Single rounds depend on which
    clients were selected. While a run is short, and so still learns, the average is close to the newest model.

    Args:
        newest: theta_t, the weights that are selected to predict in this round.
        average: P_{t-1}, the weights that predicted before.
        round_index: t - 1.
        decay: eta.

    >>> import torch
    >>> old, new = {"w": torch.tensor(0.0)}, {"w": torch.tensor(1.0)}
    >>> average_rounds(new, old, 0) is new, round(float(average_rounds(new, old, 33)["w"]), 2)
    (True, 0.5)
    """
    return interpolate(newest, average, (1 + decay) / (round_index + 1 + decay))


class Refined(ModelSelection):
    """The paper's: the refined model."""

    def refined_share(self, context: RoundContext, memory: dict[str, Any]) -> float:
        """1."""
        return 1.0


class Aggregated(ModelSelection):
    """The base's weights; with FedAvg, the average."""

    def refined_share(self, context: RoundContext, memory: dict[str, Any]) -> float:
        """0."""
        return 0.0


class LossInterpolated(ModelSelection):
    """s = mean local loss / log C: less of the refined model as the clients learn."""

    def refined_share(self, context: RoundContext, memory: dict[str, Any]) -> float:
        """The relative loss."""
        return context.relative_loss


class ClientValidatedBroadcast(ModelSelection):
    """s = relative loss * gain * informativeness: how much the clients gain by the refined model.

    The targets must also tell samples apart: while models are at chance, those that predict the most frequent class are
    found better, and who starts from them takes longer to leave it (docs/lab/choices.md).
    """

    def refined_share(self, context: RoundContext, memory: dict[str, Any]) -> float:
        """0 unless the gain is beyond chance."""
        if context.validation is None or context.targets is None:
            return 0.0
        least = _LEAST_GAIN_WITH_CLIENT_STATE if context.base_keeps_client_state else 0.0
        gain = context.validation.broadcast_share(least)
        share = context.relative_loss
        share *= gain * informativeness(context.targets) if gain > 0 else 0.0
        return share


class ClientValidatedPrediction(ModelSelection):
    """The model that the clients find better, and a mix where they find both equal (`client_validation`)."""

    def refined_share(self, context: RoundContext, memory: dict[str, Any]) -> float:
        """0 where the base's model is better beyond chance, else between a half and 1."""
        return 1.0 if context.validation is None else context.validation.prediction_share()

    def select(self, refined: Weights, base: Weights, context: RoundContext, memory: dict[str, Any]) -> Weights:
        """The mix; of a group of models only the member that the clients find better than the mean, if there is one."""
        member = None if context.validation is None else context.validation.preferred_member()
        selected = super().select(refined, base, context, memory)
        return selected if member is None else with_member(selected, member)


BROADCASTS: dict[str, type[ModelSelection]] = {
    "refined": Refined,
    "aggregated": Aggregated,
    "loss_interpolated": LossInterpolated,
    "client_validated": ClientValidatedBroadcast,
}
PREDICTIONS: dict[str, type[ModelSelection]] = {
    "refined": Refined,
    "aggregated": Aggregated,
    "client_validated": ClientValidatedPrediction,
}
