"""Local training with MNN, as FedML's Android app does it; emulated devices use it.

The app (FedML's repository, android/fedmlsdk/MobileNN/src/train/FedMLMNNTrainer.cpp) always uses SGD with momentum 0.1
and no weight decay, shuffles, keeps a smaller last batch, and saves the graph in training mode, with its input named
`data` and its output `prob`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .device_models import import_mnn

#: The app's momentum, which is not a setting.
MOMENTUM = 0.1

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TrainingParameters:
    """The training parameters of the server's start message."""

    epochs: int
    batch_size: int
    learning_rate: float


class MnnNetwork:
    """A network from an .mnn file, for prediction and training."""

    def __init__(self, file: Path) -> None:
        expr = import_mnn().expr
        variables = expr.load_as_dict(str(file))
        inputs, outputs = expr.get_inputs_and_outputs(variables)
        if len(inputs) != 1 or len(outputs) != 1:
            raise ValueError(f"{file} is not a network with one input and one output")
        for variable in variables.values():
            # If nothing is marked as trainable, every array is; scalars are constants of the graph.
            if variable.op_type == "Const" and variable.shape:
                variable.fix_as_trainable()
        self._shape = list(next(iter(inputs.values())).shape)
        self._module = import_mnn().nn.load_module(list(inputs.values()), list(outputs.values()), True)

    def probabilities(self, inputs: Array) -> Array:
        """Class probabilities [N, C] of inputs [N, channels, height, width]."""
        self._module.train(False)
        output = self._module.forward(_constant(inputs))
        # `read` returns MNN's own memory, which is freed with the variable.
        return np.array(output.read(), copy=True)

    def train(
        self, inputs: Array, labels: Array, parameters: TrainingParameters, generator: np.random.Generator
    ) -> float:
        """Run all local epochs; the mean loss over all samples of all epochs."""
        expr, nn = import_mnn().expr, import_mnn().nn
        optimiser = import_mnn().optim.SGD(self._module, parameters.learning_rate, MOMENTUM, 0.0)
        total = 0.0
        for _ in range(parameters.epochs):
            self._module.train(True)
            order = generator.permutation(len(inputs))
            for start in range(0, len(order), parameters.batch_size):
                batch = order[start : start + parameters.batch_size]
                predicted = self._module.forward(_constant(inputs[batch]))
                classes = predicted.shape[1]
                targets = expr.one_hot(_constant(labels[batch]), classes, 1, 0)
                loss = nn.loss.cross_entropy(predicted, targets)
                total += float(loss.read()) * len(batch)
                if not optimiser.step(loss):
                    raise RuntimeError("MNN's optimiser made no step; the file has no trainable parameter")
            self._module.clear_cache()
            expr.gc(1)
        return total / (parameters.epochs * len(inputs))

    def save(self, file: Path) -> None:
        """Write the network as the app does."""
        expr = import_mnn().expr
        self._module.train(True)
        data = expr.placeholder(self._shape, expr.NC4HW4)
        data.name = "data"
        output = self._module.forward(data)
        output.name = "prob"
        expr.save([output], str(file))


def _constant(values: Array) -> Any:
    expr = import_mnn().expr
    if np.issubdtype(values.dtype, np.integer):
        return expr.const(np.ascontiguousarray(values, dtype=np.int32), list(values.shape), expr.NCHW, expr.int)
    return expr.const(np.ascontiguousarray(values, dtype=np.float32), list(values.shape), expr.NCHW)
