"""Compare two checkouts: CPU seconds of inference and training of convolutional nets.

    python benchmarks/two_versions_of_nets.py OLD_CHECKOUT NEW_CHECKOUT [--repetitions 5]

The checkouts alternate; each measurement is a process with one thread: a pass over 512 images by `predict_logits`, and
a client's epoch of 320 images by `train_locally`, each after a warm-up. A round is extrapolated: 12 passes over the
server's set (ten teachers, the initial and the averaged model) and 500 steps. Distillation uses Adam and clients SGD;
for these nets the difference is 5 %.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from checkouts import format_spread, parse_checkouts

#: Net, number of server samples, number of classes.
NETS = (("convnet", 26_000, 10), ("vgg8", 10_000, 100))
_READ, _OWN, _BATCH = 512, 320, 64

CHILD = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
from mrtf_fedml.algorithms.local_training import train_locally
from mrtf_fedml.data import TensorShard
from mrtf_fedml.models import create_model, predict_logits
try:
    from mrtf_fedml.config import ModelSettings, TrainSettings
    from mrtf_fedml.models import match_layout
    from mrtf_fedml.models.state_dict import snapshot
except ImportError:
    # The names of older checkouts.
    from mrtf_fedml.settings import ModelSettings, TrainSettings
    from mrtf_fedml.models import in_layout as match_layout
    from mrtf_fedml.models.weights import snapshot
net, classes, read, own, batch = sys.argv[1], *map(int, sys.argv[2:])
torch.manual_seed(0)
model = create_model(ModelSettings(model=net), (3, 32, 32), classes, seed=0)
images, labels = match_layout(model, torch.randn(read, 3, 32, 32)), torch.randint(classes, (read,))
start, shard = snapshot(model), TensorShard(images, labels, np.arange(own), batch)
settings = TrainSettings(epochs=1, batch_size=batch, learning_rate=0.01)
ways = (
    lambda: predict_logits(model, images),
    lambda: train_locally(model, start, shard, settings, seed=0, client=0, round_index=0),
)
taken = []
for way in ways:
    way()
    began = time.process_time()
    way()
    taken.append(time.process_time() - began)
print(json.dumps([taken[0] / read, taken[1] / (own // batch)]))
"""


def main() -> None:
    """Print one row per net and part: seconds of the new checkout / seconds of the old one."""
    options = parse_checkouts(__doc__)
    for net, samples, classes in NETS:
        olds, news = [], []
        for _ in range(options.repetitions):
            for checkout, rows in ((options.old, olds), (options.new, news)):
                read, step = measure(checkout, net, classes)
                rows.append((read, step, 12 * samples * read + 500 * step))
        for part, name in enumerate(("reading", "training", f"a round, M = {samples}")):
            ratios = [new[part] / old[part] for old, new in zip(olds, news, strict=True)]
            print(f"{net + ', ' + name:<32}new / old {format_spread(ratios)}", flush=True)


def measure(checkout: Path, net: str, classes: int) -> tuple[float, float]:
    """CPU seconds per predicted sample, and per training step of a client."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", CHILD, net, *map(str, (classes, _READ, _OWN, _BATCH))]
    process = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(f"{checkout} failed:\n{process.stderr}")
    read, step = json.loads(process.stdout)
    return float(read), float(step)


if __name__ == "__main__":
    main()
