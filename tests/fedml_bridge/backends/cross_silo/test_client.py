"""A silo's own shard."""

from __future__ import annotations

from typing import Any

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.cross_silo.client import local_shard


@pytest.mark.parametrize(
    ("local", "named"),
    [
        ({}, "train_data_local_dict"),
        ({0: [1], 1: [1]}, "no shard 2 for the silo of rank 3"),
        ({2: []}, "rank 3 has no training sample"),
    ],
)
def test_local_shard_that_is_missing_or_empty_is_an_error(local: dict[int, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        local_shard([0, 0, None, None, {key: len(value) for key, value in local.items()}, local, {}, 2], client=2)


def test_local_shard_of_dataset_with_one_shard_ignores_its_key() -> None:
    assert local_shard([2, 0, None, None, {0: 2}, {0: ["a", "b"]}, {0: "t"}, 2], client=2) == (["a", "b"], "t", 2)
