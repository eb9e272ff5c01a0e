"""A step of training and a batch read, as written by compiled: CPU seconds of one thread, five times by turns.

OMP_NUM_THREADS=1 python benchmarks/compiled.py [mlp lenet convnet ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from turns import told

from mrtf_fedml.models import create_model
from mrtf_fedml.models.compiled import compiled_call
from mrtf_fedml.models.layout import as_laid_out, lay_out
from mrtf_fedml.settings import ModelSettings

SHAPES = {"mlp": (784,), "lenet": (1, 28, 28), "convnet": (3, 32, 32), "vgg8": (3, 32, 32)}
REPETITIONS = 5
Call = Callable[[nn.Module, Tensor], Any]


def main() -> None:
    """Print a line per net."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or ("mlp", "lenet", "convnet"):
        print(f"{name:<8} training {ratios(name, 64, 5, step)}  reading {ratios(name, 512, 1, read)}", flush=True)


def ratios(name: str, samples: int, times: int, work: Callable[[Call, nn.Module, Tensor], None]) -> str:
    """Times faster when compiled: the median, and the least and the largest."""
    model = create_model(ModelSettings(model=name), SHAPES[name], 10, seed=0)
    inputs = as_laid_out(torch.randn(samples, *SHAPES[name]), lay_out(model))
    found = []
    for _ in range(REPETITIONS):
        seconds = []
        for call in (_as_written, compiled_call()):
            # The first time it compiles.
            work(call, model, inputs)
            began = time.process_time()
            for _ in range(times):
                work(call, model, inputs)
            seconds.append(time.process_time() - began)
        found.append(seconds[0] / seconds[1])
    return told(found)


def _as_written(model: nn.Module, inputs: Tensor) -> Any:
    return model(inputs)


def step(call: Call, model: nn.Module, inputs: Tensor) -> None:
    """Forward and backward, as a client does it."""
    model.train()
    for parameter in model.parameters():
        parameter.grad = None
    nn.functional.cross_entropy(call(model, inputs), torch.arange(len(inputs)) % 10).backward()


def read(call: Call, model: nn.Module, inputs: Tensor) -> None:
    """One batch, as a teacher reads it."""
    model.eval()
    with torch.inference_mode():
        call(model, inputs)


if __name__ == "__main__":
    main()
