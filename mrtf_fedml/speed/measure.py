"""How time is taken: CPU seconds, the ways by turns, and a ratio with its spread.

A machine that others use is slower in one second than in the next. What is compared is therefore run by turns, each
repetition gives one ratio, and the median stands in the table with the least and the largest beside it.
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

#: A smoke test does each thing once; a measurement at least five times.
REPETITIONS = 5


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: what was measured; the same in every version, so that files can be compared.
        ratio: the median over the repetitions.
        low: the least of them.
        high: the largest.
        means: what is divided by what.
        better: whether less or more of it is better; None where it is neither.
        detail: other numbers and words that belong to it.
    """

    name: str
    ratio: float
    low: float
    high: float
    means: str
    better: Literal["less", "more"] | None = "less"
    detail: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON can say it."""
        return asdict(self)


def row_of(
    name: str,
    above: Sequence[float],
    below: Sequence[float],
    means: str,
    better: Literal["less", "more"] | None = "less",
    **detail: Any,
) -> Row:
    """A row from the repetitions of two ways, divided one by one.

    >>> row_of("x", [2.0, 3.0, 8.0], [1.0, 1.0, 2.0], "a / b").ratio
    3.0
    """
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    return Row(name, statistics.median(ratios), min(ratios), max(ratios), means, better, detail)


def cpu_seconds(work: Callable[[], object]) -> float:
    """What one call costs this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def by_turns(ways: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """The CPU seconds of each way, repetition by repetition, after one call each that is not counted."""
    for work in ways.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, work in ways.items():
            taken[name].append(cpu_seconds(work))
    return taken


def in_own_process(work: Callable[..., Any], *given: Any) -> Any:
    """The result of a module's function in a process of its own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


@dataclass
class Grown:
    """What a piece of work cost in a process of its own.

    Attributes:
        seconds: CPU seconds of each repetition.
        memory_before: the most megabytes that the process had held when it was ready to begin.
        memory_after: the most that it held at all.
        start: CPU seconds until it was ready.
    """

    seconds: list[float]
    memory_before: float
    memory_after: float
    start: float


def by_turns_in_processes(
    ready: Callable[[int, bool], Callable[[], float]], sizes: Sequence[int], quick: bool
) -> dict[int, Grown]:
    """The work of each size, by turns, each size in a process whose peak of memory nobody else has raised.

    Args:
        ready: a module's function that prepares the work of a size; the work returns its own CPU seconds.
        sizes: what `ready` is called with, beside `quick`.
        quick: once in place of five times after a call that is not counted.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pools = {size: stack.enter_context(ProcessPoolExecutor(1, context)) for size in sizes}
        grown = {size: Grown([], *pool.submit(_begin, ready, size, quick).result()) for size, pool in pools.items()}
        for turn in range(1 if quick else REPETITIONS + 1):
            for size, pool in pools.items():
                seconds, grown[size].memory_after = pool.submit(_again).result()
                if quick or turn > 0:
                    grown[size].seconds.append(seconds)
    return grown


#: In such a process: its work.
_works: list[Callable[[], float]] = []


def _begin(ready: Callable[[int, bool], Callable[[], float]], size: int, quick: bool) -> tuple[float, float, float]:
    began = time.process_time()
    _works.append(ready(size, quick))
    held = peak_megabytes()
    return held, held, time.process_time() - began


def _again() -> tuple[float, float]:
    return _works[-1](), peak_megabytes()


def peak_megabytes() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
