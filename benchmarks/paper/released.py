"""MrTF as the authors' released program does it, where it departs from their paper (docs/explanation/method.md).

Run from this folder, or with it on PYTHONPATH: `federated_optimizer: "released:ReleasedMrTF"`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from mrtf_fedml.algorithms import ClientUpdate, MrTF, RoundContext, ServerContext
from mrtf_fedml.algorithms.local_training import one_epoch, train_locally
from mrtf_fedml.algorithms.mrtf.components import ComponentMemory, RoundTargets
from mrtf_fedml.algorithms.mrtf.target_transforms import TemporalSmoothing
from mrtf_fedml.algorithms.types import Weights
from mrtf_fedml.config import MrTFSettings, RunSettings
from mrtf_fedml.config.types import VALIDATED
from mrtf_fedml.models.modes import is_mode_independent
from mrtf_fedml.models.outputs import logit_rows
from mrtf_fedml.models.precision import autocast
from mrtf_fedml.models.state_dict import load_weights
from mrtf_fedml.phases import TEACHERS, phase
from mrtf_fedml.refinery.clustering import reassign_by_prototypes, unit_rows
from mrtf_fedml.refinery.distillation import DistillationSteps, train_mode
from mrtf_fedml.refinery.ensemble import entropy, entropy_weights, local_weight

#: The program counts batches from one, and trains on at least so many before it stops at the next.
LEAST_BATCHES = 5
#: The clients' batches of server samples that share one std.
STD_BATCHES = 10
#: Rounds whose mean loss stands for the loss in u_t.
LOSS_WINDOW = 5
#: What keeps a batch of equal logits from a division by zero.
SMALLEST_STD = 1e-8


@dataclass(frozen=True, config=VALIDATED)
class ReleasedSettings(MrTFSettings):
    """The keys of `mrtf_args` with the program's defaults."""

    #: tau of Eq. 6.
    temperature: float = 1.0
    #: Clustering from the first round on.
    cluster_warmup: int = 0
    #: The average goes back to the clients.
    broadcast: str = "aggregated"
    #: How much of the last round's targets is kept, at most.
    target_smoothing: float = 0.75
    #: Adam's first rate.
    refine_lr: float = 1e-3


class SmoothingInAllRounds(TemporalSmoothing):
    """Temporal smoothing, however much the local models agree."""

    fade = 0.0


class ReleasedMrTF(MrTF):
    """MrTF by the authors' program."""

    name: ClassVar[str] = "ReleasedMrTF"
    Settings: ClassVar[type[Any]] = ReleasedSettings

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.base.local_training = partial(train_locally, batches=released_batches, loss_weight=lambda labels: 1)
        self.transforms = {"temporal_smoothing": SmoothingInAllRounds(self.refinery)}

    @classmethod
    def resolve_hparams(cls, settings: RunSettings) -> Any:
        """The program has no presets: the one that a user's own data get does not count."""
        explicit = {key: value for key, value in settings.explicit.get(cls.section, {}).items() if key != "preset"}
        return super().resolve_hparams(replace(settings, explicit={**settings.explicit, cls.section: explicit}))

    def known_logits(self, updates: Sequence[ClientUpdate], server: ServerContext) -> Mapping[int, Tensor]:
        """Teachers predict in train mode; where that makes no difference, as ever."""
        if is_mode_independent(server.model):
            return super().known_logits(updates, server)
        batch = STD_BATCHES * self.settings.train.batch_size
        return {index: train_mode_logits(server, update.weights, batch) for index, update in enumerate(updates)}

    def train_loss(self, updates: Sequence[ClientUpdate], memory: ComponentMemory, classes: int) -> float:
        """The mean of the rounds before; log C before any."""
        earlier: list[float] = memory["loss_window"].get("losses", [])
        memory["loss_window"]["losses"] = [*earlier, super().train_loss(updates, memory, classes)][-LOSS_WINDOW:]
        return sum(earlier) / len(earlier) if earlier else math.log(max(classes, 2))

    def make_targets(self, context: RoundContext, memory: ComponentMemory) -> RoundTargets:
        """One std per batch, one softmax of the entropies over local and global models, squared distances."""
        predictions, settings = context.predictions, self.refinery
        rows = STD_BATCHES * self.settings.train.batch_size * context.predictions.positions
        local = batch_normalized_probabilities(predictions.local.double(), settings.temperature, rows)
        if predictions.initial is None:
            raise NotImplementedError("the released program always lets the global models teach")
        both = torch.stack([predictions.initial, predictions.aggregated]).double()
        both = batch_normalized_probabilities(both, settings.temperature, rows)
        u_t = local_weight(context.train_loss, context.classes)
        entropies = entropy(torch.cat([local, both])) / context.classes
        ensemble = targets = jointly_weighted_ensemble(local, both, entropies, u_t)
        if predictions.features is not None:
            temperature = settings.cluster_temperature
            targets = reassign_by_prototypes(ensemble, predictions.features, temperature, squared_distances)
        # Until here a row's sum was the sample's weight in the prototypes.
        ensemble = ensemble / ensemble.sum(dim=1, keepdim=True)
        targets = targets / targets.sum(dim=1, keepdim=True)
        return self.transform_targets(ensemble, targets, u_t, context, memory)

    def distillation(self) -> DistillationSteps:
        """Adam's rate falls by half a cosine, with weight decay and clipped gradients."""
        refinery = self.refinery
        return DistillationSteps(
            refinery.refine_steps,
            refinery.refine_lr,
            refinery.refine_batch_size,
            schedule="cosine",
            weight_decay=1e-6,
            clip_norm=100.0,
        )


def released_batches(data: Any, epochs: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of all epochs, or of five batches if these are more, and one more."""
    made = 0
    for _ in range(epochs):
        for batch in one_epoch(data, generator):
            made += 1
            yield batch
    wanted = max(made, LEAST_BATCHES) + 1
    while made < wanted:
        beyond = list(islice(one_epoch(data, generator), wanted - made))
        if not beyond:
            return
        made += len(beyond)
        yield from beyond


def train_mode_logits(server: ServerContext, weights: Weights, batch: int) -> Tensor:
    """The logits [M, C] of these weights in train mode: BatchNorm uses each batch's own statistics, dropout drops.

    Args:
        server: the inputs, and the model.
        weights: the teacher's.
        batch: samples per batch, in their order; a last batch of one joins the one before it.
    """
    load_weights(server.model, weights)
    parts = list(server.inputs.split(batch))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    precise = torch.promote_types(torch.float32, next(server.model.parameters()).dtype)
    computed = autocast(server.precision.teachers, server.inputs.device)
    with train_mode(server.model), torch.no_grad(), phase(TEACHERS), computed:
        # Copies, since the model's first layer may work in place.
        return torch.cat([logit_rows(server.model(part.clone()), len(part)).to(precise) for part in parts])


def batch_normalized_probabilities(logits: Tensor, temperature: float, rows: int) -> Tensor:
    """Eq. 6 with one std for each batch of samples, in their order.

    Args:
        logits: f_k, [K, M, C].
        temperature: tau.
        rows: samples per batch; the last batch may be smaller.

    Returns:
        q_k, [K, M, C]. The std is the sample's (correction 1).
    """
    parts = [part / (part.std(dim=(-2, -1), keepdim=True) + SMALLEST_STD) for part in logits.split(rows, dim=-2)]
    return torch.softmax(temperature * torch.cat(parts, dim=-2), dim=-1)


def jointly_weighted_ensemble(
    local: Tensor, global_probabilities: Tensor, entropies: Tensor, local_weight: float
) -> Tensor:
    """Q = (K + 2) * (u_t / K sum_k w_k(x) q_k + (1 - u_t) / 2 sum_g w_g(x) q_g), w(x) = softmax over K + 2 of -e(x).

    Args:
        local: q_k of the local models, [K, M, C].
        global_probabilities: q_g of the initial and of the aggregated model, [2, M, C].
        entropies: e(x) of the local models, then of the two, [K + 2, M].
        local_weight: u_t.

    Returns:
        q, [M, C]. Rows sum to one only where all models have the same entropy.
    """
    clients = len(local)
    shares = torch.full((clients + 2,), local_weight / clients, dtype=local.dtype, device=local.device)
    shares[clients:] = (1.0 - local_weight) / 2
    weights = (clients + 2) * shares[:, None] * entropy_weights(entropies)
    return torch.einsum("km,kmc->mc", weights, torch.cat([local, global_probabilities]))


def squared_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """D_f(h(x), v_c) = |h(x)/|h(x)| - v_c/|v_c||^2: twice the cosine distance.

    Args:
        features: h, [M, D]; a zero vector is equally far from every prototype.
        prototypes: v, [C, D].

    Returns:
        D_f, [M, C], in [0, 4]; infinite for a class without a prototype, so that no sample is assigned to it.
    """
    cosines = unit_rows(features) @ unit_rows(prototypes).T
    nonzero = features.any(dim=1, keepdim=True).to(cosines)
    distances = nonzero + 1.0 - 2.0 * cosines
    return distances.masked_fill(~prototypes.any(dim=1), torch.inf)
