"""The server's context with logits that ranks computed."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from mrtf_fedml.algorithms import ServerContext
from mrtf_fedml.fedml_bridge.backends.mpi.teacher_logits import RankLogitsContext
from mrtf_fedml.models import FeatureExtractor


def test_rank_logits_context_has_the_fields_of_the_server_context() -> None:
    model = nn.Linear(2, 3)
    bench = ServerContext(
        model, torch.zeros(4, 2), FeatureExtractor(model, None, torch.zeros(2, 2)), classes=3, positions=5
    )
    shared = RankLogitsContext(bench, predicted={})
    for field in dataclasses.fields(ServerContext):
        # What a bench remembers of its last reading and teaching is its own.
        if field.name not in ("_last", "_refined", "_steps"):
            assert getattr(shared, field.name) is getattr(bench, field.name), field.name
