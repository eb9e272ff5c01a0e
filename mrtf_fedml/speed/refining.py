"""`refine`: teachers, targets and distillation, each beside the least time that its arithmetic needs.

A teacher's pass is linear in the samples and distillation in the steps: a slice of both is timed, and the round is put
together from them. The targets are timed whole.
"""

from __future__ import annotations

import torch
from torch import nn

from ..algorithms import ServerBench
from ..models import FeatureTap, in_layout
from ..refinery.targets import distillation_targets
from ..settings import MrTFSettings
from .arithmetic import RateMeter, operations_of
from .measure import REPETITIONS, Row, by_turns, row_of
from .scenes import REFINING, SMALL, Scene

_BATCH = 64


def refining(quick: bool) -> list[Row]:
    """A row per part and one for the whole, of each scene."""
    rows: list[Row] = []
    for scene in SMALL if quick else REFINING:
        rows += _scene(scene, 1 if quick else REPETITIONS)
    return rows


def _scene(scene: Scene, repetitions: int) -> list[Row]:
    light = scene.model in ("mlp", "charlstm")
    read, steps = min(scene.samples, 2048 if light else 512), min(scene.steps, 20 if light else 5)
    model = scene.make_model()
    inputs = in_layout(model, scene.inputs(read))
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), scene.classes)
    settings = MrTFSettings(refine_steps=steps, refine_batch_size=min(_BATCH, read))
    followed = torch.randn(read, scene.classes).softmax(dim=1)
    logits = torch.randn(scene.teachers, scene.samples, scene.classes)

    def distil() -> None:
        bench.distil(model, inputs, followed, settings, torch.Generator().manual_seed(0))

    meter = RateMeter(any(isinstance(module, nn.Conv2d) for module in model.modules()))
    rates = []
    taken = by_turns(
        {
            "rates": lambda: rates.append(meter.measure()),
            "teachers": lambda: bench.read(model),
            "targets": lambda: distillation_targets(logits, logits[:2], None, 1.0, settings),
            "distilling": distil,
        },
        repetitions,
    )
    # Of the product and the convolution alone, without the call that is not counted.
    known = rates[-repetitions:]
    passes = (scene.teachers + 2) * scene.samples / read
    forward = operations_of(model.eval(), inputs[:_BATCH], backward=False).times(read / len(inputs[:_BATCH]))
    step = operations_of(model, inputs[:_BATCH], backward=True)
    least = {
        "teachers": [rate.seconds(forward) for rate in known],
        "distilling": [rate.seconds(step) * steps for rate in known],
    }
    means = "least time of the arithmetic / time taken"
    rows = [
        row_of(f"{part}: {scene.name}", least[part], taken[part], means, "more", cpu_seconds=taken[part])
        for part in least
    ]
    whole = [
        (limit * passes + one * scene.steps / steps, read_ * passes + targets + distilled * scene.steps / steps)
        for limit, one, read_, targets, distilled in zip(
            least["teachers"],
            least["distilling"],
            taken["teachers"],
            taken["targets"],
            taken["distilling"],
            strict=True,
        )
    ]
    rows.append(
        row_of(
            f"whole: {scene.name}",
            [limit for limit, _ in whole],
            [spent for _, spent in whole],
            means,
            "more",
            cpu_seconds_per_round=[spent for _, spent in whole],
            targets_seconds=taken["targets"],
            gigaflops=[(rate.products / 1e9, rate.convolutions / 1e9) for rate in known],
        )
    )
    return rows
