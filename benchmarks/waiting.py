"""Compare how OpenMP threads wait, and the gain of a second thread: training steps of MLPNet.

    python benchmarks/waiting.py [--repetitions 7]

One thread; two threads that spin while waiting (GNU's default), that spin briefly (ours), and that sleep at once. The
variants alternate. Wall seconds count, so use idle cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from checkouts import format_spread

WAYS = {
    "1 thread": {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"},
    "2 threads, spinning": {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "2"},
    "2 threads, for a moment": {"GOMP_SPINCOUNT": "10000", "OMP_NUM_THREADS": "2"},
    "2 threads, asleep": {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "2"},
}

CHILD = """
import time, torch
from mrtf_fedml.models.nets.mlp import MLPNet
model = MLPNet([784], 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
images, labels = torch.randn(64, 784), torch.randint(10, (64,))

def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()

for _ in range(10):
    step()
wall, cpu = time.time(), time.process_time()
for _ in range(100):
    step()
print(time.time() - wall, time.process_time() - cpu)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    repetitions = parser.parse_args().repetitions
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(repetitions):
        for way, asked in WAYS.items():
            taken[way].append(seconds(asked))
    for way, both in taken.items():
        wall, cpu = ([one[place] for one in both] for place in (0, 1))
        print(f"{way}: wall seconds {format_spread(wall)}, CPU seconds {format_spread(cpu)}")
    spinning = [wall for wall, _ in taken["2 threads, spinning"]]
    for way in WAYS:
        ratios = [wall / other for (wall, _), other in zip(taken[way], spinning, strict=True)]
        print(f"{way}, by spinning: {format_spread(ratios)}")
    print(f"load: {os.getloadavg()[0]:.1f}")


def seconds(asked: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of 100 steps."""
    said = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, **asked, "MKL_NUM_THREADS": asked["OMP_NUM_THREADS"]},
        capture_output=True,
        text=True,
        check=True,
    )
    wall, cpu = said.stdout.split()
    return float(wall), float(cpu)


if __name__ == "__main__":
    main()
