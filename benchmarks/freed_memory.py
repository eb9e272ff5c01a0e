"""The gain of keeping freed memory: training steps of convolutional nets and copies of weights.

    python benchmarks/freed_memory.py [--repetitions 5]

Memory is kept (as `mrtf` does) or given back (the C library's default), alternating, in separate processes with one
thread. Prints CPU milliseconds of a client's step of 64 images and of a copy of 8 MB, page faults, and peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from checkouts import format_spread

CHILD = """
import json, resource, sys, time
import numpy as np, torch
from mrtf_fedml.process.tuning import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
torch.set_num_threads(1)
from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.data import TensorShard
from mrtf_fedml.models import create_model, match_layout
from mrtf_fedml.models.state_dict import snapshot
from mrtf_fedml.config import ModelSettings, TrainSettings

def used():
    return resource.getrusage(resource.RUSAGE_SELF)

def measure(work, times):
    work()
    pages, began = used().ru_minflt, time.process_time()
    work()
    return 1000 * (time.process_time() - began) / times, (used().ru_minflt - pages) / times

taken, weights = {}, torch.ones(2_000_000)
taken["copy"] = measure(lambda: [weights.clone() for _ in range(10)], 10)
for net in ("convnet", "vgg8"):
    model = create_model(ModelSettings(model=net), (3, 32, 32), 10, seed=0)
    images, labels = match_layout(model, torch.randn(512, 3, 32, 32)), torch.randint(10, (512,))
    start, shard = snapshot(model), TensorShard(images, labels, np.arange(512), 64)
    settings = TrainSettings(epochs=1, batch_size=64, learning_rate=0.01)
    taken[net] = measure(lambda: train_locally(model, start, shard, settings, seed=0, client=0, round_index=0), 8)
print(json.dumps({"taken": taken, "peak": used().ru_maxrss / 1024}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    pairs = [(run_variant("given back"), run_variant("kept")) for _ in range(repetitions)]
    for work in pairs[0][0]["taken"]:
        given_back, kept = ([pair[variant]["taken"][work] for pair in pairs] for variant in (0, 1))
        ratios = [a[0] / b[0] for a, b in zip(kept, given_back, strict=True)]
        print(f"{work}: kept / given back {format_spread(ratios)}")
        for variant, values in (("given back", given_back), ("kept", kept)):
            milliseconds, faults = ([value[column] for value in values] for column in (0, 1))
            print(f"  {variant}: {format_spread(milliseconds)} ms, {format_spread(faults)} page faults")
    for index, variant in enumerate(("given back", "kept")):
        print(f"peak, {variant}: {format_spread([pair[index]['peak'] for pair in pairs])} MB")


def run_variant(variant: str) -> dict:
    """The measurements of one process."""
    process = subprocess.run(
        [sys.executable, "-c", CHILD, variant],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(process.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
