r"""`data_args\.holdout`: held-out samples of the clients as the server's set, with sealed labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from mrtf_fedml.data import SealedEvaluator, TensorShard, TransductiveDataset, from_fedml, load, load_for_rank
from mrtf_fedml.data.holdout import apply_holdout
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings


def rows(inputs: Any) -> list[bytes]:
    return sorted(row.numpy().tobytes() for row in inputs)


def test_holdout_moves_the_fraction_of_each_client_without_loss_or_duplicates() -> None:
    whole, held = load(small_settings()), load(small_settings(holdout=0.25))
    for client, shard in whole[5].items():
        assert held[4][client] == shard.samples - round(0.25 * shard.samples)
    kept = torch.cat([shard.inputs[shard.indices] for shard in held[5].values()])
    assert rows(torch.cat([kept, held.server_inputs])) == rows(whole[2].inputs[whole[2].indices])
    assert len(held.ids) == len(set(held.ids)) == len(held.server_inputs) == whole[0] - held[0]
    assert torch.equal(held.real_inputs, whole.server_inputs)
    assert isinstance(held.evaluator, SealedEvaluator)


def test_holdout_evaluator_has_the_labels_of_the_held_out_samples() -> None:
    whole, held = load(small_settings()), load(small_settings(holdout=0.25))
    label = {
        x.numpy().tobytes(): y for shard in whole[5].values() for xs, ys in shard for x, y in zip(xs, ys, strict=True)
    }
    true_labels = torch.stack([label[x.numpy().tobytes()] for x in held.server_inputs])
    assert held.evaluator.score(true_labels) == 1.0
    ordered = [name.split(",")[0] for name in held.ids]
    assert ordered != sorted(ordered), "the order of the server's set must not reveal the client of a sample"


def test_holdout_is_equal_on_every_rank_and_rejected_across_silos() -> None:
    held = load(small_settings(holdout=0.25))
    across = load_for_rank(small_settings(holdout=0.25, backend="MPI"), None)
    assert isinstance(across, TransductiveDataset)
    assert torch.equal(across.server_inputs, held.server_inputs)
    for rank in (0, 1):
        with pytest.raises(UserError, match=r"data_args\.holdout"):
            load_for_rank(small_settings(holdout=0.25, training_type="cross_silo", backend="GRPC"), rank)


def test_holdout_of_a_users_own_loader() -> None:
    batches = {k: [(torch.full((4, 2), float(k)), torch.tensor([0, 1, 0, 1]))] * 2 for k in range(2)}
    server = [(torch.zeros(3, 2), torch.full((3,), -1))]
    eight = from_fedml((16, 3, None, server, {0: 8, 1: 8}, batches, batches, 2))
    held = apply_holdout(eight, small_settings(holdout=0.25))
    assert held[4] == {0: 6, 1: 6}
    assert all(isinstance(shard, TensorShard) for shard in held[5].values())
    assert sorted(held.server_inputs[:, 0].tolist()) == [0, 0, 1, 1]
    few = dataclasses.replace(small_settings().data, holdout=0.01)
    with pytest.raises(UserError, match=r"data_args\.holdout is 0\.01"):
        apply_holdout(eight, dataclasses.replace(small_settings(), data=few))
