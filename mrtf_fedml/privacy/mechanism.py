"""Clipping and noise of a client's update before it is sent (the paper's table on differential privacy)."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..algorithms.types import Weights
from ..config import PrivacySettings, RunSettings
from ..rng import torch_generator

#: BatchNorm's own epsilon. A smaller running variance, caused by the noise, would make the model diverge.
MIN_VARIANCE = 1e-5

#: Draws standard Gaussian noise of a shape, in float64.
Noise = Callable[[Sequence[int]], Tensor]


def protect_update(
    start: Weights, weights: Weights, settings: PrivacySettings, noise: Noise
) -> OrderedDict[str, Tensor]:
    """theta_t + clip(theta_k - theta_t) + noise, as a new dict.

    The norm is that of the whole update over its floating-point entries, BatchNorm's statistics included. Counters are
    sent unchanged, since their increments would reveal the number of the client's batches. Running variances are kept
    positive after the noise is added, which reveals nothing more.

    >>> settings = PrivacySettings(clip=1.0)
    >>> protect_update({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}, settings, system_noise)["w"]
    tensor([0.6000, 0.8000])

    Args:
        start: theta_t.
        weights: theta_k.
        settings: clip and sigma.
        noise: draws the noise.
    """
    updates = {
        key: value.detach().cpu().double() - start[key].detach().cpu().double()
        for key, value in weights.items()
        if value.is_floating_point()
    }
    norm = torch.sqrt(torch.stack([(update**2).sum() for update in updates.values()]).sum())
    scale = 1.0 if settings.clip is None or norm <= settings.clip else settings.clip / float(norm)
    protected = OrderedDict[str, Tensor]()
    for key, old in start.items():
        if key not in updates:
            protected[key] = old.detach().clone()
            continue
        value = old.detach().cpu().double() + scale * updates[key] + noise(old.shape) * settings.sigma
        value = value.to(old.dtype)
        protected[key] = value.clamp_min(MIN_VARIANCE) if key.endswith("running_var") else value
    return protected


def client_noise(settings: RunSettings, client: int, round_index: int) -> Noise:
    """The source of a client's noise.

    A simulation derives it from the run's seed, so that it can be repeated. Elsewhere the server knows that seed and
    could subtract the noise, so every number comes from the operating system of the client.
    """
    if settings.common.training_type != "simulation":
        return system_noise
    generator = torch_generator(settings.common.random_seed, "privacy noise", client, round_index)
    return lambda shape: torch.randn(tuple(shape), generator=generator, dtype=torch.float64)


def system_noise(shape: Sequence[int]) -> Tensor:
    """Standard Gaussian noise from the operating system's cryptographic generator, float64.

    Box-Muller: sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2 pi v), u and v uniform in (0, 1) with 53 bits each. A
    seeded generator would not do: PyTorch's has 32 bits of seed, which a server can search through.
    """
    count = math.prod(shape)
    words = np.frombuffer(os.urandom(16 * ((count + 1) // 2)), dtype=np.uint64).reshape(2, -1)
    u, v = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2.0 * np.log(u)), 2.0 * np.pi * v
    pairs = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return torch.from_numpy(pairs[:count].copy()).reshape(tuple(shape))
