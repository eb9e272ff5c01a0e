"""What the server has read it need not read again: the same bytes, one pass fewer."""

from __future__ import annotations

import torch
from torch import nn

from mrtf_fedml.algorithms import ServerBench
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.models.weights import clone, snapshot
from mrtf_fedml.refinery.refine import refine
from mrtf_fedml.settings import MrTFSettings


def test_the_starts_logits_are_taken_from_the_last_round_where_it_has_read_them() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    inputs = torch.randn(20, 4)
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), 3)
    start, other = snapshot(model), {key: value + 0.1 for key, value in snapshot(model).items()}
    read = bench.logits(start)
    assert bench.remembered(start) is read
    assert bench.remembered(clone(start)) is None, "equal weights may be changed by whoever holds them"

    passes = []

    def counted(model: nn.Module, features: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        passes.append(features)
        return bench.read(model, features)

    refined = []
    for known in (None, bench.remembered(start)):
        generator = torch.Generator().manual_seed(0)
        settings = MrTFSettings(refine_steps=3, refine_batch_size=5)
        done = refine(
            model, start, [other, start], other, inputs, 0.5, settings, counted, generator, initial_logits=known
        )
        refined.append(done.weights)
    assert len(passes) == 4 + 3
    assert all(torch.equal(refined[0][key], refined[1][key]) for key in start)
    bench.logits(other)
    assert bench.remembered(start) is None
