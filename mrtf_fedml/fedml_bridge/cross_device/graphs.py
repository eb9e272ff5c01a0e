"""FedML's mobile networks as MNN graphs, for any number of classes.

FedML's own builders (fedml.model.mobile) fix ten classes, and with today's MNN package their modules must be built
while expressions are lazy.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import UserError


@functools.cache
def engine() -> Any:
    """The package MNN, imported when it is needed and set to keep its graphs."""
    try:
        import MNN
    except ImportError as error:
        raise UserError("training across devices needs the package MNN; pip install 'mrtf_fedml[device]'") from error
    # Otherwise every expression is evaluated at once and the graph, which is to be saved or trained, is lost.
    MNN.expr.lazy_eval(True)
    return MNN


def saved(graph: Callable[[int], Any], classes: int) -> bytes:
    """The .mnn file of a graph, as MNN saves it."""
    output = graph(classes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.mnn"
        engine().expr.save([output], str(file))
        return file.read_bytes()


def lenet(classes: int) -> Any:
    """What FedML's `lenet` computes of a picture: class probabilities."""
    expr, nn = engine().expr, engine().nn
    maps = expr.placeholder([1, 1, 28, 28], expr.NCHW)
    for inputs, outputs in ((1, 20), (20, 50)):
        maps = expr.max_pool(expr.relu(nn.conv(inputs, outputs, [5, 5])(maps)), [2, 2], [2, 2])
    hidden = expr.relu(nn.linear(800, 500)(_flat(maps)))
    return expr.softmax(nn.linear(500, classes)(hidden), 1)


def resnet20(classes: int) -> Any:
    """What FedML's `resnet20` computes of a picture: class probabilities."""
    expr, nn = engine().expr, engine().nn
    maps = expr.relu(_normalised(expr.placeholder([1, 3, 32, 32], expr.NCHW), 3, 16))
    width = 16
    for outputs in (16, 16, 16, 32, 32, 32, 64, 64, 64):
        stride = 1 if outputs == width else 2
        inner = expr.relu(_normalised(maps, width, outputs, stride=stride))
        inner = _normalised(inner, outputs, outputs)
        shortcut = maps if outputs == width else _normalised(maps, width, outputs, kernel=1, stride=stride)
        maps, width = expr.relu(inner + shortcut), outputs
    return expr.softmax(nn.linear(64, classes)(_flat(expr.avg_pool(maps, [8, 8], [8, 8]))), 1)


def _normalised(maps: Any, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> Any:
    nn = engine().nn
    convolution = nn.conv(
        inputs,
        outputs,
        kernel_size=[kernel, kernel],
        stride=[stride, stride],
        bias=False,
        padding_mode=engine().expr.Padding_Mode.SAME,
    )
    # Left in training mode, as FedML leaves it: the graph then normalises by the batch's own statistics.
    return nn.batch_norm(outputs)(convolution(maps))


def _flat(maps: Any) -> Any:
    expr = engine().expr
    return expr.reshape(expr.convert(maps, expr.NCHW), [0, -1])
