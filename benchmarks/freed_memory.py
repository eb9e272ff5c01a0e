"""What it gains to keep freed memory: steps of convolutional nets and a round's copies, in processes of their own.

    python benchmarks/freed_memory.py [--repetitions 5]

Kept (as `mrtf` does it) and given back (the C library's default), by turns, one thread. CPU milliseconds of a client's
step of 64 images, and of each of ten copies of eight megabytes; the pages that the system had to find; the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from turns import told

CHILD = """
import json, resource, sys, time
import numpy as np, torch
from mrtf_fedml.process.allocation import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
torch.set_num_threads(1)
from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.data import TensorShard
from mrtf_fedml.models import create_model, in_layout
from mrtf_fedml.models.weights import snapshot
from mrtf_fedml.settings import ModelSettings, TrainSettings

def used():
    return resource.getrusage(resource.RUSAGE_SELF)

def told(work, times):
    work()
    pages, began = used().ru_minflt, time.process_time()
    work()
    return 1000 * (time.process_time() - began) / times, (used().ru_minflt - pages) / times

taken, weights = {}, torch.ones(2_000_000)
taken["copy"] = told(lambda: [weights.clone() for _ in range(10)], 10)
for net in ("convnet", "vgg8"):
    model = create_model(ModelSettings(model=net), (3, 32, 32), 10, seed=0)
    images, labels = in_layout(model, torch.randn(512, 3, 32, 32)), torch.randint(10, (512,))
    start, shard = snapshot(model), TensorShard(images, labels, np.arange(512), 64)
    settings = TrainSettings(epochs=1, batch_size=64, learning_rate=0.01)
    taken[net] = told(lambda: train_locally(model, start, shard, settings, seed=0, client=0, round_index=0), 8)
print(json.dumps({"taken": taken, "peak": used().ru_maxrss / 1024}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    turns = [(figures("given back"), figures("kept")) for _ in range(repetitions)]
    for what in turns[0][0]["taken"]:
        back, kept = ([turn[way]["taken"][what] for turn in turns] for way in (0, 1))
        ratios = [one[0] / other[0] for one, other in zip(kept, back, strict=True)]
        print(f"{what}: kept by given back {told(ratios)}")
        for way, figured in (("given back", back), ("kept", kept)):
            print(f"  {way}: {told([one[0] for one in figured])} ms, {told([one[1] for one in figured])} pages")
    for place, way in enumerate(("given back", "kept")):
        print(f"peak, {way}: {told([turn[place]['peak'] for turn in turns])} MB")


def figures(way: str) -> dict:
    """Of one process."""
    said = subprocess.run(
        [sys.executable, "-c", CHILD, way],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(said.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
