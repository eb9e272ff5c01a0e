"""How time is measured: CPU seconds, alternating variants, and a ratio with its spread.

A shared machine is slower in one second than in the next. The compared variants are therefore run alternately, each
repetition gives one ratio, and the table shows the median with the smallest and the largest.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: Repetitions of a measurement; a smoke test makes one.
REPETITIONS = 5


@dataclass(frozen=True)
class Row:
    """One measured ratio.

    Attributes:
        name: what is measured; stable between versions, so that files can be compared.
        ratio: the median over the repetitions.
        low: the smallest.
        high: the largest.
        means: numerator / denominator, as text.
        better: whether less or more is better; None where neither is.
        detail: further values.
    """

    name: str
    ratio: float
    low: float
    high: float
    means: str
    better: Literal["less", "more"] | None = "less"
    detail: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The row as a dictionary for JSON."""
        return asdict(self)


def ratio_row(
    name: str,
    above: Sequence[float],
    below: Sequence[float],
    means: str,
    better: Literal["less", "more"] | None = "less",
    **detail: Any,
) -> Row:
    """A row from the repetitions of two variants, divided one by one.

    >>> ratio_row("x", [2.0, 3.0, 8.0], [1.0, 1.0, 2.0], "a / b").ratio
    3.0
    """
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    return Row(name, statistics.median(ratios), min(ratios), max(ratios), means, better, detail)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def alternate(variants: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """CPU seconds of each variant and repetition, alternating, after one warm-up call each."""
    for work in variants.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repetitions):
        for name, work in variants.items():
            seconds[name].append(cpu_seconds(work))
    return seconds


def run_in_process(work: Callable[..., Any], *given: Any) -> Any:
    """The result of a module-level function, computed in a new process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


@dataclass
class ProcessCost:
    """The cost of work in its own process.

    Attributes:
        seconds: CPU seconds of each repetition.
        memory_before: peak memory before the work, in megabytes.
        memory_after: peak memory after the work, in megabytes.
        start: CPU seconds of the preparation.
    """

    seconds: list[float]
    memory_before: float
    memory_after: float
    start: float


def alternate_in_processes(
    prepare: Callable[[int, bool], Callable[[], float]], sizes: Sequence[int], quick: bool
) -> dict[int, ProcessCost]:
    """Run the work of each size, alternating, each size in its own process, so that its peak memory is its own.

    Args:
        prepare: a module-level function of size and `quick` that returns the work, which returns its CPU seconds.
        sizes: the sizes.
        quick: one call in place of five after a warm-up call.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pools = {size: stack.enter_context(ProcessPoolExecutor(1, context)) for size in sizes}
        costs = {
            size: ProcessCost([], *pool.submit(_prepare, prepare, size, quick).result()) for size, pool in pools.items()
        }
        for turn in range(1 if quick else REPETITIONS + 1):
            for size, pool in pools.items():
                seconds, costs[size].memory_after = pool.submit(_repeat).result()
                if quick or turn > 0:
                    costs[size].seconds.append(seconds)
    return costs


#: The prepared work of a worker process.
_works: list[Callable[[], float]] = []


def _prepare(prepare: Callable[[int, bool], Callable[[], float]], size: int, quick: bool) -> tuple[float, float, float]:
    began = time.process_time()
    _works.append(prepare(size, quick))
    held = peak_megabytes()
    return held, held, time.process_time() - began


def _repeat() -> tuple[float, float]:
    return _works[-1](), peak_megabytes()


def peak_megabytes() -> float:
    """Peak memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
