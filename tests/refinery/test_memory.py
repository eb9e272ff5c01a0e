"""Refining in less memory: the same bytes, whatever lies in a file and however many rows are taken at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mrtf_fedml.algorithms import ServerBench
from mrtf_fedml.errors import UserError
from mrtf_fedml.models import FeatureTap
from mrtf_fedml.models.weights import snapshot
from mrtf_fedml.refinery.memory import StoredLogits, held, room_for
from mrtf_fedml.refinery.refine import refine
from mrtf_fedml.refinery.stored_rows import StoredRows
from mrtf_fedml.refinery.targets import distillation_targets
from mrtf_fedml.settings import MrTFSettings

MODELS, ROWS, CLASSES, WIDTH = 4, 700, 5, 9


def case() -> tuple[Tensor, Tensor, Tensor]:
    """Logits of local and of global models, and features."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((MODELS, ROWS, CLASSES), (2, ROWS, CLASSES), (ROWS, WIDTH))
    local, of_globals, features = (torch.randn(*shape, generator=generator) for shape in shapes)
    local[1] *= 1e6
    local[2] = 3.0
    return local, of_globals, features


def stored_logits(local: Tensor) -> StoredLogits:
    logits, votes = held(local[0], iter(local[1:]), MODELS, stored=True)
    assert isinstance(logits, StoredLogits)
    assert torch.equal(votes.long(), local.argmax(dim=2))
    return logits


def stored_rows(features: Tensor) -> StoredRows:
    rows = StoredRows(*features.shape, features.dtype)
    for start in range(0, len(features), 128):
        rows[start : start + 128] = features[start : start + 128]
    return rows


@pytest.mark.parametrize(
    "switches",
    [
        {"preset": "paper"},
        {"preset": "tuned"},
        {"preset": "tuned", "cluster_refinery": True},
        {"preset": "released"},
        {"teacher": "avg_logit", "entropy_weights": False, "self_teaching": False},
        {"teacher_average": "trimmed"},
    ],
    ids=lambda switches: "-".join(map(str, switches.values())),
)
def test_targets_by_parts_and_from_files_have_the_same_bytes(switches: dict[str, Any]) -> None:
    local, of_globals, features = case()
    settings = MrTFSettings.from_mapping(switches)
    std_rows = 64 if settings.std_batches else 0
    facts = (0.7, settings, std_rows)
    # Votes that nothing ties together have the teachers read once more.
    whole = distillation_targets(local, of_globals, features, *facts, tied=0.1)
    for rows in (0, 64, 192, 10_000):
        for models, read in ((local, features), (stored_logits(local), stored_rows(features))):
            parts = distillation_targets(models, of_globals, read, *facts, rows=rows, tied=0.1)
            assert torch.equal(parts.probabilities, whole.probabilities)
            assert torch.equal(parts.ensemble, whole.ensemble)
            assert (parts.shares is None) == (whole.shares is None)
            assert parts.shares is None or torch.equal(parts.shares, whole.shares)  # type: ignore[arg-type]


def test_a_bounded_round_has_the_bytes_of_an_unbounded_one() -> None:
    # Rows enough that neither the logits nor the features fit into what is allowed.
    rows, classes, width = 40_000, 4, 64
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, classes))
    inputs = torch.randn(rows, 3, generator=generator)
    bench = ServerBench(model, inputs, FeatureTap(model, None, inputs[:2]), classes)
    start = snapshot(model)
    local = [
        {key: value + torch.randn(value.shape, generator=generator) for key, value in start.items()} for _ in range(5)
    ]
    made: list[list[Any]] = []

    def reading(model: nn.Module, features: bool, **where: Any) -> tuple[Tensor, Any]:
        logits, read = bench.read(model, features, **where)
        made[-1].append(type(read))
        return logits, read

    rounds = []
    for megabytes in (None, 90):
        made.append([])
        fading = {"target_smoothing": 0.5, "class_balance": 0.5, "smoothing_fade": 1.0, "balance_fade": 1.0}
        settings = MrTFSettings(refine_steps=3, refine_memory_mb=megabytes, **fading)
        order, before = torch.Generator().manual_seed(1), torch.full((rows, classes), 1 / classes)
        rounds.append(
            refine(model, start, local, local[0], inputs, 0.5, settings, reading, order, previous_targets=before)
        )
    assert made[0][-1] is Tensor
    assert made[1][-1] is StoredRows
    free, bounded = rounds
    assert all(torch.equal(free.weights[key], bounded.weights[key]) for key in start)
    for name in ("targets", "ensemble", "aggregated_logits", "votes"):
        assert torch.equal(getattr(free, name), getattr(bounded, name)), name
    assert room_for(90, 5, rows, classes, 0, True).rows > 0


def test_too_little_is_one_sentence_with_the_number() -> None:
    with pytest.raises(UserError, match=r"refine_memory_mb is 100, .* 1000000 rows of 10 classes takes 388 at least"):
        room_for(100, 10, 1_000_000, 10, 0, False)
    assert room_for(388, 10, 1_000_000, 10, 0, False).stores_logits
    wide = room_for(388, 10, 1_000_000, 10, 0, True)
    with pytest.raises(UserError, match=r"1000000 rows of 4096 features takes \d+ at least"):
        wide.allocate(1_000_000, 4096, torch.float32, torch.device("cpu"))


def test_what_was_never_written_is_not_read() -> None:
    rows = StoredRows(4, 2, torch.float64)
    rows[0:2] = torch.ones(2, 2, dtype=torch.float64)
    assert torch.equal(rows[0:2], torch.ones(2, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="never written"):
        rows[0:4]
    with pytest.raises(ValueError, match="are not"):
        rows[0:2] = torch.ones(2, 3)
