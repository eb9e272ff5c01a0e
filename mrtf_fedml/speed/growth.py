"""`clients`, `server_set` and `classes`: what a round costs as one number grows. Each size has a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from ..algorithms import ServerBench
from ..models import FeatureTap
from ..models.weights import snapshot
from ..refinery.clusters import reassigned_probabilities
from ..refinery.refine import refine
from ..settings import MrTFSettings
from .measure import Grown, Row, by_turns_in_processes, cpu_seconds, row_of
from .scenes import federation

#: `refine_memory_mb` of `server_set`: a million samples take more where nothing bounds them.
_MEMORY_MB = 700


def clients(quick: bool) -> list[Row]:
    """K = 100 to 100,000 clients with 10 chosen: a round should not feel those who are not."""
    sizes = (4, 8) if quick else (100, 1000, 10_000, 100_000)
    means = f"a round with K clients / with {sizes[0]}"
    figures = by_turns_in_processes(_clients, sizes, quick)
    return [_grown(f"K={size}", figures[size], figures[sizes[0]], 1.0, means) for size in sizes]


def _clients(number: int, quick: bool) -> Callable[[], float]:
    from .whole_round import one_round

    torch.set_num_threads(1)
    dataset = federation(number, 20, 50, (1, 28, 28), 10, batch_size=10)
    return lambda: one_round("FedAvg", number, 2 if quick else 10, 0, dataset)[0]


def server_set(quick: bool) -> list[Row]:
    """M = 10,000 to 1,000,000 server samples of 32 numbers: teachers and targets, seconds per sample, memory."""
    sizes = (64, 128) if quick else (10_000, 100_000, 1_000_000)
    means = f"seconds per sample with M samples / with {sizes[0]}"
    figures = by_turns_in_processes(_server_set, sizes, quick)
    return [_grown(f"M={size}", figures[size], figures[sizes[0]], size / sizes[0], means) for size in sizes]


def _server_set(samples: int, quick: bool) -> Callable[[], float]:
    torch.set_num_threads(1)
    # The first step of an optimiser imports 100 MB of PyTorch, which belong to no size.
    _refining(64)()
    return partial(cpu_seconds, _refining(samples))


def _refining(samples: int) -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    inputs = torch.randn(samples, 32)
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), 10)
    weights, settings = snapshot(model), MrTFSettings(refine_steps=1, refine_memory_mb=_MEMORY_MB)

    def work() -> None:
        generator = torch.Generator().manual_seed(0)
        refine(model, weights, [weights] * 3, weights, inputs, 1.0, settings, bench.read, generator)

    return work


def classes(quick: bool) -> list[Row]:
    """C = 10 to 1000 classes, M = 5000, D = 512: clustering keeps no array of M x C x D numbers."""
    sizes = (3, 6) if quick else (10, 100, 1000)
    means = f"a clustering step with C classes / with {sizes[0]}"
    figures = by_turns_in_processes(_classes, sizes, quick)
    return [_grown(f"C={size}", figures[size], figures[sizes[0]], 1.0, means, None) for size in sizes]


def _classes(number: int, quick: bool) -> Callable[[], float]:
    torch.set_num_threads(1)
    samples, width = (32, 8) if quick else (5000, 512)
    probabilities = torch.randn(samples, number, dtype=torch.float64).softmax(dim=1)
    features = torch.randn(samples, width)
    return partial(cpu_seconds, partial(reassigned_probabilities, probabilities, features, 4.0, 1))


def _grown(name: str, of: Grown, first: Grown, times: float, means: str, better: str | None = "less") -> Row:
    above, below = of.seconds, [seconds * times for seconds in first.seconds]
    # A clock's tick may be longer than the smallest sizes take.
    return row_of(
        name,
        [max(one, 1e-6) for one in above],
        [max(one, 1e-6) for one in below],
        means,
        "less" if better == "less" else None,
        cpu_seconds=of.seconds,
        memory_mb_before=of.memory_before,
        memory_mb_after=of.memory_after,
        memory_mb_added=of.memory_after - of.memory_before,
        start_seconds=of.start,
    )
