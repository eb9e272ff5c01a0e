"""h(x) of a client's own samples, for algorithms whose clients tell something about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models import FeatureTap
from ..models.evaluation import evaluating
from ..models.weights import load
from ..randomness import torch_generator
from ..settings import RunSettings
from .exchange import ClientTask


def features_of_client(
    model: nn.Module, task: ClientTask, feature_layer: str | None, seed: int
) -> tuple[Tensor, Tensor]:
    """h(x; theta_t) of all of the client's samples, [N, D], and their labels, [N]; doubles on the CPU.

    In eval mode and without gradients. Where the model answers at each of T positions, there are T rows per sample.
    """
    load(model, task.start)
    device = next(model.parameters()).device
    data: Any = task.data
    # The order changes rounding alone, but the same bytes are to come from every process.
    generator = torch_generator(seed, "features", task.client, task.round)
    batches = data.shuffled_batches(generator) if hasattr(data, "shuffled_batches") else data
    tap: FeatureTap | None = None
    features, labels = [], []
    with evaluating(model), torch.no_grad():
        for inputs, classes in batches:
            inputs = inputs.to(device)
            tap = tap or FeatureTap(model, feature_layer, inputs[:2])
            features.append(tap.read(model, inputs)[1].cpu().double())
            labels.append(classes.cpu().long().flatten())
    return torch.cat(features), torch.cat(labels)


def refuse_noise(settings: RunSettings, name: str, what: str) -> None:
    """Refuse an algorithm whose clients tell something on which `dp_args` puts no noise."""
    if settings.privacy.promised:
        raise UserError(
            f"{name}'s clients tell {what}, on which there is no noise, so no privacy (dp_args) can be promised; leave "
            "clip, sigma and enable_dp out, or choose another algorithm"
        )


def doubles_of(extra: Mapping[str, Tensor], names: tuple[str, ...]) -> list[Tensor] | None:
    """What a client told under these names, as doubles; None where it told less.

    A model that FedML's defences have made of several clients' tells nothing.
    """
    return [extra[name].double() for name in names] if all(name in extra for name in names) else None
