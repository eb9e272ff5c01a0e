"""`clients`, `server_set` and `classes`: the cost of a round as one size grows, each size in its own process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from mrtf_fedml.algorithms import ClientUpdate, MrTF, ServerContext
from mrtf_fedml.config import RunSettings
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.state_dict import snapshot
from mrtf_fedml.refinery.clustering import reassign_by_prototypes

from .measure import ProcessCost, Row, alternate_in_processes, cpu_seconds, ratio_row
from .workloads import make_federation

#: `refine_memory_mb` of `server_set`: without a bound a million samples take more.
_MEMORY_MB = 700


def measure_clients(quick: bool) -> list[Row]:
    """K = 100 to 100,000 clients with 10 per round: the cost of a round should not depend on K."""
    sizes = (4, 8) if quick else (100, 1000, 10_000, 100_000)
    means = f"a round with K clients / with {sizes[0]}"
    costs = alternate_in_processes(_clients_work, sizes, quick)
    return [_growth_row(f"K={size}", costs[size], costs[sizes[0]], 1.0, means) for size in sizes]


def _clients_work(number: int, quick: bool) -> Callable[[], float]:
    from .whole_round import time_second_round

    torch.set_num_threads(1)
    dataset = make_federation(number, 20, 50, (1, 28, 28), 10, batch_size=10)
    return lambda: time_second_round("FedAvg", number, 2 if quick else 10, 0, dataset)[0]


def measure_server_set(quick: bool) -> list[Row]:
    """M = 10,000 to 1,000,000 server samples of 32 numbers: teachers and targets, seconds per sample, memory."""
    sizes = (64, 128) if quick else (10_000, 100_000, 1_000_000)
    means = f"seconds per sample with M samples / with {sizes[0]}"
    costs = alternate_in_processes(_server_set_work, sizes, quick)
    return [_growth_row(f"M={size}", costs[size], costs[sizes[0]], size / sizes[0], means) for size in sizes]


def _server_set_work(samples: int, quick: bool) -> Callable[[], float]:
    torch.set_num_threads(1)
    # The first optimiser step imports 100 MB of PyTorch, which should count for no size.
    _refine_work(64)()
    return partial(cpu_seconds, _refine_work(samples))


def _refine_work(samples: int) -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    inputs = torch.randn(samples, 32)
    context = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 10)
    mrtf = MrTF(RunSettings.from_config({"mrtf_args": {"refine_steps": 1, "refine_memory_mb": _MEMORY_MB}}))
    state = mrtf.init_state(snapshot(model))
    updates = [ClientUpdate(client, 1, state.weights, 1.0) for client in range(3)]

    def work() -> None:
        mrtf.server_update(state, updates, state.weights, context)

    return work


def measure_classes(quick: bool) -> list[Row]:
    """C = 10 to 1000 classes, M = 5000, D = 512: clustering keeps no array of M x C x D numbers."""
    sizes = (3, 6) if quick else (10, 100, 1000)
    means = f"a clustering step with C classes / with {sizes[0]}"
    costs = alternate_in_processes(_classes_work, sizes, quick)
    return [_growth_row(f"C={size}", costs[size], costs[sizes[0]], 1.0, means, None) for size in sizes]


def _classes_work(number: int, quick: bool) -> Callable[[], float]:
    torch.set_num_threads(1)
    samples, width = (32, 8) if quick else (5000, 512)
    probabilities = torch.randn(samples, number, dtype=torch.float64).softmax(dim=1)
    features = torch.randn(samples, width)
    return partial(cpu_seconds, partial(reassign_by_prototypes, probabilities, features, 4.0))


def _growth_row(
    name: str, of: ProcessCost, first: ProcessCost, times: float, means: str, better: str | None = "less"
) -> Row:
    above, below = of.seconds, [seconds * times for seconds in first.seconds]
    # The smallest sizes may take less than the resolution of the clock.
    return ratio_row(
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
