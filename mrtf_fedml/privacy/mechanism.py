"""What is done to a client's update before it leaves the client (the paper's Table on differential privacy)."""

from __future__ import annotations

import secrets
from collections import OrderedDict

import torch
from torch import Tensor

from ..algorithms.exchange import Weights
from ..randomness import torch_generator
from ..settings import PrivacySettings, RunSettings

#: BatchNorm's own epsilon: a variance that noise has pushed below it would make the model explode or fail.
LEAST_VARIANCE = 1e-5


def protected(
    start: Weights, weights: Weights, settings: PrivacySettings, generator: torch.Generator
) -> OrderedDict[str, Tensor]:
    """theta_t + clipped (theta_k - theta_t) + noise, as a dict of its own.

    The norm is that of the whole update, over its floating-point entries, BatchNorm's statistics included. Counters are
    sent back as they came: how far they count is how many batches the client has. Running variances are kept positive,
    which reads nothing of the client but what is noised already.

    >>> settings = PrivacySettings(clip=1.0)
    >>> protected({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}, settings, torch.Generator())["w"]
    tensor([0.6000, 0.8000])

    Args:
        start: theta_t.
        weights: theta_k.
        settings: clip and sigma.
        generator: of the noise.
    """
    updates = {
        key: value.detach().cpu().double() - start[key].detach().cpu().double()
        for key, value in weights.items()
        if value.is_floating_point()
    }
    norm = torch.sqrt(torch.stack([(update**2).sum() for update in updates.values()]).sum())
    share = 1.0 if settings.clip is None or norm <= settings.clip else settings.clip / float(norm)
    sent = OrderedDict[str, Tensor]()
    for key, old in start.items():
        if key not in updates:
            sent[key] = old.detach().clone()
            continue
        noise = torch.randn(old.shape, generator=generator, dtype=torch.float64) * settings.sigma
        value = (old.detach().cpu().double() + share * updates[key] + noise).to(old.dtype)
        sent[key] = value.clamp_min(LEAST_VARIANCE) if key.endswith("running_var") else value
    return sent


def noise_generator(settings: RunSettings, client: int, round_index: int) -> torch.Generator:
    """Where a client's noise comes from.

    A simulation draws it from the run's seed, to be repeated. Anywhere else the server knows that seed, and could
    subtract the noise: there it comes from the client's system and from nothing that is shared.
    """
    if settings.common.training_type == "simulation":
        return torch_generator(settings.common.random_seed, "privacy noise", client, round_index)
    return torch.Generator().manual_seed(secrets.randbits(63))
