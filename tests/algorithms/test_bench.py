"""What the server has read it need not read again: the same bytes, one pass fewer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from mrtf_fedml.algorithms import ClientUpdate, MrTF, ServerBench
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.models.compiled import compile_reading
from mrtf_fedml.models.weights import clone, snapshot
from mrtf_fedml.refinery.refine import refine
from mrtf_fedml.settings import MrTFSettings, RunSettings


@dataclass(frozen=True)
class Counting(ServerBench):
    """A bench that says how often it was read, and whether with features."""

    passes: list[bool] = field(default_factory=list)

    def read(self, model: nn.Module, features: bool = False, **where: Any) -> tuple[torch.Tensor, Any]:
        self.passes.append(features)
        return super().read(model, features, **where)


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


def test_what_was_refined_and_not_sent_back_is_not_read_again() -> None:
    """`feedback: never`: a round starts from the average of the last one, which that has read beside its features."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    inputs = torch.randn(20, 4)
    start = snapshot(model)
    ends = []
    for forgets in (False, True):
        algorithm = MrTF(RunSettings.from_config({"mrtf_args": {"preset": "released", "refine_steps": 3}}))
        state = algorithm.first_state(start)
        bench = Counting(model, inputs, FeatureTap(model, None, inputs[:2]), 3)
        for round_index in range(3):
            assert (bench.remembered(state.weights) is None) == (forgets or round_index == 0)
            moved = [{key: value + 0.1 * k for key, value in state.weights.items()} for k in (1, 2)]
            updates = [ClientUpdate(k, 1, weights, 0.5) for k, weights in enumerate(moved)]
            state, _ = algorithm.finish_round(state, updates, algorithm.aggregate(updates), bench)
            # As where a run is resumed: equal weights, which nobody has read.
            state = replace(state, weights=clone(state.weights)) if forgets else state
        assert len(bench.passes) == (4 + 4 + 4 if forgets else 4 + 3 + 3)
        ends.append(state.answer)
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in start)
    compile_reading(model)
    bench.remember(start, torch.zeros(20, 3))
    assert bench.remembered(start) is None
