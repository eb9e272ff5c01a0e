"""A rehearsal: the clients' own samples stand in for the server's, each sample in one place, the labels sealed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.data import Examiner, TensorShard, TransductiveDataset, from_fedml, load, load_for
from mrtf_fedml.data.likeness import far_features, told_apart
from mrtf_fedml.data.rehearsal import rehearsed
from mrtf_fedml.errors import UserError
from tests.conftest import small_settings


def rows(inputs: Any) -> list[bytes]:
    return sorted(row.numpy().tobytes() for row in inputs)


def test_each_client_holds_out_its_share_and_nothing_is_lost_or_twice() -> None:
    whole, mock = load(small_settings()), load(small_settings(rehearse=0.25))
    for client, shard in whole[5].items():
        assert mock[4][client] == shard.samples - round(0.25 * shard.samples)
    kept = torch.cat([shard.inputs[shard.indices] for shard in mock[5].values()])
    assert rows(torch.cat([kept, mock.server_inputs])) == rows(whole[2].inputs[whole[2].indices])
    assert len(mock.ids) == len(set(mock.ids)) == len(mock.server_inputs) == whole[0] - mock[0]
    assert torch.equal(mock.real_inputs, whole.server_inputs)
    assert isinstance(mock.examiner, Examiner)


def test_the_labels_are_those_of_the_held_out_samples() -> None:
    whole, mock = load(small_settings()), load(small_settings(rehearse=0.25))
    label = {
        x.numpy().tobytes(): y for shard in whole[5].values() for xs, ys in shard for x, y in zip(xs, ys, strict=True)
    }
    truth = torch.stack([label[x.numpy().tobytes()] for x in mock.server_inputs])
    assert mock.examiner.score(truth) == 1.0
    ordered = [name.split(",")[0] for name in mock.ids]
    assert ordered != sorted(ordered), "the order of the server's set does not tell whose a sample is"


def test_every_rank_holds_out_the_same_and_no_silo_does() -> None:
    mock = load(small_settings(rehearse=0.25))
    across = load_for(small_settings(rehearse=0.25, backend="MPI"), None)
    assert isinstance(across, TransductiveDataset)
    assert torch.equal(across.server_inputs, mock.server_inputs)
    for rank in (0, 1):
        with pytest.raises(UserError, match="samples of all clients together, which may not leave their parties"):
            load_for(small_settings(rehearse=0.25, training_type="cross_silo", backend="GRPC"), rank)


def test_a_loader_of_the_users_own_is_rehearsed_too() -> None:
    batches = {k: [(torch.full((4, 2), float(k)), torch.tensor([0, 1, 0, 1]))] * 2 for k in range(2)}
    server = [(torch.zeros(3, 2), torch.full((3,), -1))]
    eight = from_fedml((16, 3, None, server, {0: 8, 1: 8}, batches, batches, 2))
    mock = rehearsed(eight, small_settings(rehearse=0.25))
    assert mock[4] == {0: 6, 1: 6}
    assert all(isinstance(shard, TensorShard) for shard in mock[5].values())
    assert sorted(mock.server_inputs[:, 0].tolist()) == [0, 0, 1, 1]
    few = dataclasses.replace(small_settings().data, rehearse=0.01)
    with pytest.raises(UserError, match="no client has a whole sample"):
        rehearsed(eight, dataclasses.replace(small_settings(), data=few))


def test_two_sets_are_told_apart_where_they_differ_and_not_where_they_do_not() -> None:
    draw = np.random.default_rng(0)
    one, same = (torch.from_numpy(draw.normal(size=(300, 5))).float() for _ in range(2))
    moved, wider = same + torch.tensor([0.0, 3.0, 0.0, 0.0, 0.0]), same * 3
    assert 0.35 < told_apart(one, same) < 0.65
    assert told_apart(one, moved) > 0.9
    assert told_apart(one, wider) > 0.9
    assert told_apart(one[:10], same) is None, "too few to tell"
    assert [name for name, _ in far_features(one, moved, list("abcde"))] == ["b"]
    assert far_features(one, same, None) == []
