"""`refine`: teachers, targets and distillation, each against the least time that its arithmetic needs.

A teacher's pass is linear in the samples and distillation in the steps: a slice of both is timed, and the round is
extrapolated from them. The targets are timed in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import ServerContext
from mrtf_fedml.algorithms.mrtf import distillation_targets
from mrtf_fedml.config import MrTFSettings
from mrtf_fedml.config.sections import PrecisionName, parse_precision
from mrtf_fedml.models import FeatureExtractor, match_layout
from mrtf_fedml.models.precision import FLOAT32

from .limits import AdamMeter, Products, RateMeter, count_operations, share_in_products
from .measure import REPETITIONS, Row, alternate, ratio_row
from .workloads import PAPER_WORKLOADS, SMALL_WORKLOADS, Workload

_BATCH = 64
#: Batch sizes of a teacher's pass; the limit is that of the fastest.
_PASSES = (64, 256, 1024)
#: By model: numbers of samples and steps of the measured slice. They are large enough that one-time work, such as the
#: allocation of Adam's moments, does not count more than in a round.
_SLICES = {"mlp": (2048, 100), "charlstm": (2048, 20), "convnet": (512, 10), "vgg8": (512, 5)}


def measure_refine(quick: bool, precision: PrecisionName = FLOAT32) -> list[Row]:
    """Rows for each part and for the whole, of each workload; the limits have the same precision."""
    rows: list[Row] = []
    for workload in SMALL_WORKLOADS if quick else PAPER_WORKLOADS:
        rows += _measure_workload(workload, 1 if quick else REPETITIONS, precision)
    return rows


def _measure_workload(workload: Workload, repetitions: int, precision: PrecisionName) -> list[Row]:
    most_read, most_steps = _SLICES[workload.model]
    read, steps = min(workload.samples, most_read), min(workload.steps, most_steps)
    model = workload.make_model()
    inputs = match_layout(model, workload.inputs(read))
    extractor = FeatureExtractor(model, None, inputs[:2])
    context = ServerContext(model, inputs, extractor, workload.classes, precision=parse_precision(precision))
    settings = MrTFSettings(refine_steps=steps, refine_batch_size=min(_BATCH, read))
    targets = torch.randn(read, workload.classes).softmax(dim=1)
    logits = torch.randn(workload.teachers, workload.samples, workload.classes)

    def distil() -> None:
        context.distill(model, inputs, targets, settings, torch.Generator().manual_seed(0))

    limits = _Limits(model, inputs, precision)
    known: list[dict[str, float]] = []
    within: list[tuple[float, float]] = []
    taken = alternate(
        {
            "limits": lambda: known.append(limits.now()),
            "teachers": lambda: context.predict(model),
            "targets": lambda: distillation_targets({}, logits, logits[:2], None, 1.0),
            "distilling": distil,
            "within": lambda: within.append(
                (share_in_products(lambda: context.predict(model)), share_in_products(distil))
            ),
        },
        repetitions,
    )
    # Without the warm-up call.
    known, within = known[-repetitions:], within[-repetitions:]
    passes, rounds = (workload.teachers + 2) * workload.samples, workload.steps
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
        _row(f"teachers: {workload.name}", [limit["sample"] * read for limit in known], taken["teachers"], means),
        _row(f"distilling: {workload.name}", [limit["step"] * steps for limit in known], taken["distilling"], means),
        _row(
            f"whole: {workload.name}",
            least("sample", "step"),
            spent,
            means,
            targets_seconds=taken["targets"],
            gigaflops=[(limit["products"] / 1e9, limit["convolutions"] / 1e9) for limit in known],
            adam_seconds_per_step=[limit["adam"] for limit in known],
        ),
        _row(
            f"whole with Adam: {workload.name}",
            [one + limit["adam"] * rounds for one, limit in zip(least("sample", "step"), known, strict=True)],
            spent,
            "the same and Adam's own steps / time taken",
        ),
        _row(
            f"whole, one rate: {workload.name}",
            least("plain_sample", "plain_step"),
            spent,
            "all operations at a large product's rate / time taken",
        ),
        _row(
            f"whole, within products: {workload.name}",
            in_products,
            spent,
            "time within the products, as they run / time taken",
            within_teachers=[shares[0] for shares in within],
            within_distilling=[shares[1] for shares in within],
        ),
    ]


class _Limits:
    """Measures the least seconds of a predicted sample and of a training step."""

    def __init__(self, model: nn.Module, inputs: Tensor, precision: PrecisionName) -> None:
        batch = inputs[:_BATCH]
        convolutional = any(isinstance(module, nn.Conv2d) for module in model.modules())
        self._meter, self._adam = RateMeter(convolutional, precision), AdamMeter(model)
        self._step = Products(model.train(), batch, backward=True, precision=precision)
        self._step_operations = count_operations(model, batch, backward=True)
        model.zero_grad(set_to_none=True)
        model.eval()
        sizes = [size for size in _PASSES if size <= len(inputs)] or [len(inputs)]
        self._reads = {size: Products(model, inputs[:size], False, precision) for size in sizes}
        self._sample_operations = count_operations(model, batch, backward=False).times(1 / len(batch))

    def now(self) -> dict[str, float]:
        """The current limits; measured with each repetition, since the load of a shared machine changes."""
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
    return ratio_row(name, least, spent, means, "more", cpu_seconds=list(spent), **detail)
