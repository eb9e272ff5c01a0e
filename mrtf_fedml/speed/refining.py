"""`refine`: teachers, targets and distillation, each beside the least time that its arithmetic needs.

A teacher's pass is linear in the samples and distillation in the steps: a slice of both is timed, and the round is put
together from them. The targets are timed whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..algorithms import ServerBench
from ..models import FeatureTap, in_layout
from ..models.precision import FLOAT32
from ..refinery.targets import distillation_targets
from ..settings import MrTFSettings
from ..settings.precision import Word, precision_of
from .arithmetic import AdamMeter, RateMeter, operations_of
from .measure import REPETITIONS, Row, by_turns, row_of
from .products import Products
from .scenes import REFINING, SMALL, Scene
from .within import share_within_products

_BATCH = 64
#: A pass may take any batch: the limit is that of the fastest of these.
_PASSES = (64, 256, 1024)
#: By model: how many samples are read and how many steps are made. What a round does once, as to make room for Adam's
#: moments, must not weigh more in the slice than it does in the round.
_SLICES = {"mlp": (2048, 100), "charlstm": (2048, 20), "convnet": (512, 10), "vgg8": (512, 5)}


def refining(quick: bool, precision: Word = FLOAT32) -> list[Row]:
    """A row per part and some for the whole, of each scene; the limits are of the same precision."""
    rows: list[Row] = []
    for scene in SMALL if quick else REFINING:
        rows += _scene(scene, 1 if quick else REPETITIONS, precision)
    return rows


def _scene(scene: Scene, repetitions: int, precision: Word) -> list[Row]:
    most_read, most_steps = _SLICES[scene.model]
    read, steps = min(scene.samples, most_read), min(scene.steps, most_steps)
    model = scene.make_model()
    inputs = in_layout(model, scene.inputs(read))
    tap = FeatureTap(model, None, inputs[:2])
    bench = ServerBench(model, inputs, tap, scene.classes, precision=precision_of(precision))
    settings = MrTFSettings(refine_steps=steps, refine_batch_size=min(_BATCH, read))
    followed = torch.randn(read, scene.classes).softmax(dim=1)
    logits = torch.randn(scene.teachers, scene.samples, scene.classes)

    def distil() -> None:
        bench.distil(model, inputs, followed, settings, torch.Generator().manual_seed(0))

    limits = _Limits(model, inputs, precision)
    known: list[dict[str, float]] = []
    within: list[tuple[float, float]] = []
    taken = by_turns(
        {
            "limits": lambda: known.append(limits.now()),
            "teachers": lambda: bench.read(model),
            "targets": lambda: distillation_targets(logits, logits[:2], None, 1.0, settings),
            "distilling": distil,
            "within": lambda: within.append(
                (share_within_products(lambda: bench.read(model)), share_within_products(distil))
            ),
        },
        repetitions,
    )
    # Without the call that is not counted.
    known, within = known[-repetitions:], within[-repetitions:]
    passes, rounds = (scene.teachers + 2) * scene.samples, scene.steps
    spent = [
        one * passes / read + two + three * rounds / steps
        for one, two, three in zip(taken["teachers"], taken["targets"], taken["distilling"], strict=True)
    ]

    in_products = [
        one * passes / read * shares[0] + three * rounds / steps * shares[1]
        for one, three, shares in zip(taken["teachers"], taken["distilling"], within, strict=True)
    ]

    def least(sample: str, step: str) -> list[float]:
        return [limit[sample] * passes + limit[step] * rounds for limit in known]

    means = "products, each at its shape's rate / time taken"
    return [
        _row(f"teachers: {scene.name}", [limit["sample"] * read for limit in known], taken["teachers"], means),
        _row(f"distilling: {scene.name}", [limit["step"] * steps for limit in known], taken["distilling"], means),
        _row(
            f"whole: {scene.name}",
            least("sample", "step"),
            spent,
            means,
            targets_seconds=taken["targets"],
            gigaflops=[(limit["products"] / 1e9, limit["convolutions"] / 1e9) for limit in known],
            adam_seconds_per_step=[limit["adam"] for limit in known],
        ),
        _row(
            f"whole with Adam: {scene.name}",
            [one + limit["adam"] * rounds for one, limit in zip(least("sample", "step"), known, strict=True)],
            spent,
            "the same and Adam's own steps / time taken",
        ),
        _row(
            f"whole, one rate: {scene.name}",
            least("plain_sample", "plain_step"),
            spent,
            "all operations at a large product's rate / time taken",
        ),
        _row(
            f"whole, within products: {scene.name}",
            in_products,
            spent,
            "time within the products, as they run / time taken",
            within_teachers=[shares[0] for shares in within],
            within_distilling=[shares[1] for shares in within],
        ),
    ]


class _Limits:
    """The least seconds of a sample that is read and of a step, as often as they are asked for."""

    def __init__(self, model: nn.Module, inputs: Tensor, precision: Word) -> None:
        batch = inputs[:_BATCH]
        convolutional = any(isinstance(module, nn.Conv2d) for module in model.modules())
        self._meter, self._adam = RateMeter(convolutional, precision), AdamMeter(model)
        self._step = Products(model.train(), batch, backward=True, precision=precision)
        self._step_operations = operations_of(model, batch, backward=True)
        model.zero_grad(set_to_none=True)
        model.eval()
        sizes = [size for size in _PASSES if size <= len(inputs)] or [len(inputs)]
        self._reads = {size: Products(model, inputs[:size], False, precision) for size in sizes}
        self._sample_operations = operations_of(model, batch, backward=False).times(1 / len(batch))

    def now(self) -> dict[str, float]:
        """A shared machine changes: measured beside each repetition."""
        rates = self._meter.measure()
        return {
            "sample": min(products.seconds(rates.products) / size for size, products in self._reads.items()),
            "step": self._step.seconds(rates.products),
            "plain_sample": rates.seconds(self._sample_operations),
            "plain_step": rates.seconds(self._step_operations),
            "adam": self._adam.seconds(),
            "products": rates.products,
            "convolutions": rates.convolutions,
        }


def _row(name: str, least: Sequence[float], spent: Sequence[float], means: str, **detail: Any) -> Row:
    return row_of(name, least, spent, means, "more", cpu_seconds=list(spent), **detail)
