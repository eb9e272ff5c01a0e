"""`ridge`: FedRidge as the features and classes grow: the time by the least time of its arithmetic, memory, bytes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms.fedridge import RELATIVE_STRENGTHS, Sums, find_impossible_sum
from mrtf_fedml.models.state_dict import size_in_bytes

from .measure import Row, alternate, peak_megabytes, ratio_row, run_in_process

#: D features and C classes of each size.
_SIZES = ((512, 10), (1280, 100), (2048, 1000), (4096, 10), (4096, 1000))
_SAMPLES, _BATCH = 1000, 64
_REPETITIONS = 3


def measure_ridge(quick: bool) -> list[Row]:
    """Rows for a client's sums of 1000 samples, and for what the server does with them, of each size."""
    sizes = ((8, 3), (16, 6)) if quick else _SIZES
    return [row for size in sizes for row in run_in_process(_measure_size, *size, 1 if quick else _REPETITIONS)]


def _measure_size(features: int, classes: int, repetitions: int) -> list[Row]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(_SAMPLES, features, generator=generator)
    labels = torch.randint(classes, (_SAMPLES,), generator=generator)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        return zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True)

    before = peak_megabytes()
    sent = Sums.of(batches(), features, classes).to_tensors()
    client_memory = peak_megabytes() - before
    server = [0.0]

    def solve() -> None:
        sums = Sums.from_tensors(sent)
        assert find_impossible_sum(sums, _SAMPLES) is None
        sums.solve([sums.strength(relative) for relative in RELATIVE_STRENGTHS])
        server[0] = peak_megabytes() - before

    solve()
    extended = torch.cat([inputs, torch.ones(_SAMPLES, 1)], dim=1).double()
    one_hot = nn.functional.one_hot(labels, classes).double()
    gram, class_sums = extended.T @ extended, extended.T @ one_hot
    gram.diagonal().add_(1.0)

    def least_sums() -> None:
        extended.T @ extended
        extended.T @ one_hot

    def least_solve() -> None:
        torch.linalg.cholesky(gram)
        for _ in RELATIVE_STRENGTHS:
            torch.cholesky_solve(class_sums, torch.linalg.cholesky(gram))

    work = {
        "sums": lambda: Sums.of(batches(), features, classes).to_tensors(),
        "least_sums": least_sums,
        "solve": solve,
        "least_solve": least_solve,
    }
    taken = alternate(work, repetitions)
    seconds = {name: [max(one, 1e-6) for one in values] for name, values in taken.items()}
    size, message = f"D={features}, C={classes}", size_in_bytes(sent) / 2**20
    return [
        ratio_row(
            f"client: {size}",
            seconds["sums"],
            seconds["least_sums"],
            "a client's sums of 1000 samples / their products alone",
            cpu_seconds=taken["sums"],
            memory_mb_added=client_memory,
            message_mb=message,
        ),
        ratio_row(
            f"server: {size}",
            seconds["solve"],
            seconds["least_solve"],
            "check one client's sums and solve for six alphas / seven Cholesky decompositions and six solutions alone",
            cpu_seconds=taken["solve"],
            memory_mb_added=server[0],
            candidates_mb=4 * len(RELATIVE_STRENGTHS) * (features + 1) * classes / 2**20,
        ),
    ]
