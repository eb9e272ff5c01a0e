"""Local training by MNN's own engine, as FedML's Android app does it: the emulated device's half of a round.

The app (FedML's repository, android/fedmlsdk/MobileNN/src/train/FedMLMNNTrainer.cpp) takes SGD with a momentum of 0.1
and no weight decay, whatever the run's settings say, shuffles, keeps the last batch however small, and saves the graph
in training mode, with its input named `data` and its output `prob`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .graphs import engine

#: The app's; it cannot be set.
MOMENTUM = 0.1

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LocalTraining:
    """What the server's start message tells a device of its training."""

    epochs: int
    batch_size: int
    learning_rate: float


class MnnNetwork:
    """A network from an .mnn file, ready to answer and to be trained."""

    def __init__(self, file: Path) -> None:
        expr = engine().expr
        variables = expr.load_as_dict(str(file))
        inputs, outputs = expr.get_inputs_and_outputs(variables)
        if len(inputs) != 1 or len(outputs) != 1:
            raise ValueError(f"{file} is no network of one input and one output")
        for variable in variables.values():
            # Where the file does not say what may be trained, it is every array; single numbers are the graph's own.
            if variable.op_type == "Const" and variable.shape:
                variable.fix_as_trainable()
        self._shape = list(next(iter(inputs.values())).shape)
        self._module = engine().nn.load_module(list(inputs.values()), list(outputs.values()), True)

    def probabilities(self, inputs: Array) -> Array:
        """Class probabilities [N, C] of inputs [N, channels, height, width]."""
        self._module.train(False)
        answer = self._module.forward(_constant(inputs))
        # What `read` returns is MNN's own memory, which is gone with the variable.
        return np.array(answer.read(), copy=True)

    def train(self, inputs: Array, labels: Array, how: LocalTraining, generator: np.random.Generator) -> float:
        """All local epochs; the mean loss over the samples as trained."""
        expr, nn = engine().expr, engine().nn
        optimiser = engine().optim.SGD(self._module, how.learning_rate, MOMENTUM, 0.0)
        total = 0.0
        for _ in range(how.epochs):
            self._module.train(True)
            order = generator.permutation(len(inputs))
            for start in range(0, len(order), how.batch_size):
                batch = order[start : start + how.batch_size]
                predicted = self._module.forward(_constant(inputs[batch]))
                classes = predicted.shape[1]
                wanted = expr.one_hot(_constant(labels[batch]), classes, 1, 0)
                loss = nn.loss.cross_entropy(predicted, wanted)
                total += float(loss.read()) * len(batch)
                if not optimiser.step(loss):
                    raise RuntimeError("MNN's optimiser made no step; the file holds nothing that can be trained")
            self._module.clear_cache()
            expr.gc(1)
        return total / (how.epochs * len(inputs))

    def save(self, file: Path) -> None:
        """Write the network as the app does."""
        expr = engine().expr
        self._module.train(True)
        data = expr.placeholder(self._shape, expr.NC4HW4)
        data.name = "data"
        answer = self._module.forward(data)
        answer.name = "prob"
        expr.save([answer], str(file))


def _constant(values: Array) -> Any:
    expr = engine().expr
    if np.issubdtype(values.dtype, np.integer):
        return expr.const(np.ascontiguousarray(values, dtype=np.int32), list(values.shape), expr.NCHW, expr.int)
    return expr.const(np.ascontiguousarray(values, dtype=np.float32), list(values.shape), expr.NCHW)
