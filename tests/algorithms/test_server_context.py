"""What the server has read it need not read again: the same bytes, one pass fewer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from mrtf_fedml.algorithms import ClientUpdate, MrTF, ServerContext
from mrtf_fedml.config import RunSettings
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.state_dict import clone, snapshot


@dataclass(frozen=True)
class Counting(ServerContext):
    """A server that says how often it was read, and whether with features."""

    passes: list[bool] = field(default_factory=list)

    def predict(self, model: nn.Module, features: bool = False) -> tuple[torch.Tensor, Any]:
        self.passes.append(features)
        return super().predict(model, features)


def test_predict_all_reuses_cached_logits_of_the_initial_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    inputs = torch.randn(20, 4)
    server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), 3)
    start, other = snapshot(model), {key: value + 0.1 for key, value in snapshot(model).items()}
    read = server.logits(start)
    assert server.cached_logits(start) is read
    assert server.cached_logits(clone(start)) is None, "equal weights may be changed by whoever holds them"

    counting = Counting(model, inputs, FeatureExtractor(model, None, inputs[:2]), 3)
    updates = [ClientUpdate(0, 1, other, 0.5), ClientUpdate(1, 1, start, 0.5)]
    fresh = counting.predict_all(updates, other, initial=start, features=True)
    assert counting.passes == [False, False, False, True]
    counting.cache_logits(start, read)
    cached = counting.predict_all(updates, other, initial=start, features=True)
    assert counting.passes[4:] == [False, False, True]
    assert fresh.initial is not None
    assert cached.initial is read
    assert torch.equal(fresh.initial, cached.initial)
    server.logits(other)
    assert server.cached_logits(start) is None


def test_broadcast_aggregated_reuses_cached_logits_in_the_next_round() -> None:
    """`broadcast: aggregated`: a round starts from the last one's average, whose logits are cached."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    inputs = torch.randn(20, 4)
    start = snapshot(model)
    ends = []
    for forgets in (False, True):
        algorithm = MrTF(RunSettings.from_config({"mrtf_args": {"broadcast": "aggregated", "refine_steps": 3}}))
        state = algorithm.init_state(start)
        server = Counting(model, inputs, FeatureExtractor(model, None, inputs[:2]), 3)
        for round_index in range(3):
            assert (server.cached_logits(state.weights) is None) == (forgets or round_index == 0)
            moved = [{key: value + 0.1 * k for key, value in state.weights.items()} for k in (1, 2)]
            updates = [ClientUpdate(k, 1, weights, 0.5) for k, weights in enumerate(moved)]
            state, _ = algorithm.server_update(state, updates, algorithm.aggregate(updates), server)
            # As in a resumed run: equal weights without cached logits.
            state = replace(state, weights=clone(state.weights)) if forgets else state
        assert len(server.passes) == (4 + 4 + 4 if forgets else 4 + 3 + 3)
        ends.append(state.prediction_weights)
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in start)
