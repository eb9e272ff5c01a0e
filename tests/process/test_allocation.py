"""What was freed is kept: seen from the pages that the system has to find again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_COPIES = """
import resource
import torch
from mrtf_fedml.process.allocation import keep_freed_memory

torch.set_num_threads(1)
kept = {call}
model = torch.ones(2_000_000)


def turn():
    # A round's updates: all are there at once, and freed together.
    return len([model.clone() for _ in range(12)])


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


for _ in range(4):
    turn()
before = faults()
for _ in range(5):
    turn()
print(kept, faults() - before)
"""


def _printed(call: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _COPIES.format(call=call)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_updates_of_the_next_round_lie_where_the_last_ones_lay() -> None:
    kept, faults = _printed("keep_freed_memory()")
    assert kept == "True"
    # 12 copies of 8 MB, five times: 117,000 pages, of which a heap that is kept asks for next to none again.
    assert int(faults) < 5000


def test_what_the_user_gives_back_goes_back() -> None:
    # Blocks of more than 128 kB lie alone, and go when they are freed.
    kept, faults = _printed("keep_freed_memory()", MALLOC_MMAP_THRESHOLD_="131072")
    assert kept == "False"
    assert int(faults) > 100_000


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_stays(variable: str) -> None:
    value = {"MALLOC_TRIM_THRESHOLD_": "131072", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}[variable]
    kept, _ = _printed("keep_freed_memory()", **{variable: value})
    assert kept == "False"
