"""Refining in bounded memory: the same bytes, however many rows are taken at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import ClientUpdate, MrTF, ServerContext
from mrtf_fedml.algorithms.mrtf import ComponentMemory, distillation_targets
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureExtractor
from mrtf_fedml.models.state_dict import snapshot
from mrtf_fedml.refinery.row_blocks import rows_per_block

MODELS, ROWS, CLASSES, WIDTH = 4, 700, 5, 9


def case() -> tuple[Tensor, Tensor, Tensor]:
    """Logits of local and of global models, and features."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((MODELS, ROWS, CLASSES), (2, ROWS, CLASSES), (ROWS, WIDTH))
    local, of_globals, features = (torch.randn(*shape, generator=generator) for shape in shapes)
    local[1] *= 1e6
    local[2] = 3.0
    return local, of_globals, features


@pytest.mark.parametrize(
    "switches",
    [
        {"preset": "paper"},
        {"preset": "tuned"},
        {"preset": "tuned", "cluster_refinery": True},
        {"teacher": "avg_logit", "teacher_weighting": "uniform", "self_teaching": False},
    ],
    ids=lambda switches: "-".join(map(str, switches.values())),
)
def test_targets_in_blocks_have_the_bytes_of_all_at_once(
    switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (*case(), 0.7)
    whole_memory = ComponentMemory({})
    whole = distillation_targets(switches, *given, whole_memory)
    for rows in (64, 192, 10_000):
        monkeypatch.setattr("mrtf_fedml.algorithms.mrtf.components.rows_per_block", lambda *_, rows=rows: rows)
        memory = ComponentMemory({})
        blocks = distillation_targets(switches, *given, memory)
        assert torch.equal(blocks.targets, whole.targets)
        assert torch.equal(blocks.student, whole.student)
        assert torch.equal(blocks.ensemble, whole.ensemble)
        kept, kept_whole = memory.flatten(), whole_memory.flatten()
        assert kept.keys() == kept_whole.keys()
        assert all(torch.equal(kept[name], kept_whole[name]) for name in kept)


def test_round_in_row_blocks_has_the_bytes_of_a_whole_round() -> None:
    rows, classes, width, megabytes = 40_000, 4, 16, 20
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, classes))
    inputs = torch.randn(rows, 3, generator=generator)
    start = snapshot(model)
    updates = [
        ClientUpdate(k, 1, {n: v + torch.randn(v.shape, generator=generator) for n, v in start.items()}, 0.5)
        for k in range(5)
    ]
    rounds = []
    for bound in (None, megabytes):
        keys = {"refine_steps": 3, "refine_memory_mb": bound, "class_balance": 0.5, "cluster_warmup": 0}
        mrtf = MrTF(RunSettings.from_config({"mrtf_args": keys}))
        server = ServerContext(model, inputs, FeatureExtractor(model, None, inputs[:2]), classes)
        rounds.append(mrtf.server_update(mrtf.init_state(start), updates, updates[0].weights, server))
    (free, free_report), (bounded, bounded_report) = rounds
    assert 0 < rows_per_block(megabytes, 5, rows, classes, width) < rows
    assert all(torch.equal(free.weights[key], bounded.weights[key]) for key in start)
    for name, predictions in free_report.predictions.items():
        assert torch.equal(predictions, bounded_report.predictions[name]), name


def test_too_small_memory_bound_is_refused_with_the_needed_size() -> None:
    with pytest.raises(UserError, match=r"refine_memory_mb is 100, .* takes 845 at least"):
        rows_per_block(100, 10, 1_000_000, 10)
    assert rows_per_block(845, 10, 1_000_000, 10) > 0
