"""The GPU of each rank."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.errors import UserError
from mrtf_fedml.process.gpus import check_gpu, select_gpu
from mrtf_fedml.process.mpi import RankInfo


def gpus(tmp_path: Path, mapping: object, ranks: int, visible: int, key: str = "mine") -> list[int]:
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump({"mine": mapping}))
    return [select_gpu(str(file), key, RankInfo(rank, ranks, rank, ranks), visible) for rank in range(ranks)]


def test_select_gpu_follows_fedml_mapping(tmp_path: Path) -> None:
    assert gpus(tmp_path, {"one": [2, 1], "two": [0, 2]}, ranks=5, visible=2) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("mapping", "ranks", "visible", "key", "message"),
    [
        ({"one": [1, 1, 1]}, 3, 2, "mine", "uses 3 GPUs of 'one', which has 2"),
        ({"one": [3]}, 3, 0, "mine", "uses 1 GPUs of 'one', which has 0"),
        ({"one": [1, 1]}, 3, 2, "mine", "places 2 ranks, but mpirun started 3"),
        ({"one": [2, 2]}, 3, 2, "mine", "places 4 ranks, but mpirun started 3"),
        ({"one": [3]}, 3, 1, "yours", "has no mapping 'yours'"),
        ({"one": 3}, 3, 1, "mine", "must give each host a list"),
        ({"one": [-1, 4]}, 3, 2, "mine", "must give each host a list"),
    ],
)
def test_select_gpu_rejects_invalid_mapping_on_every_rank(
    tmp_path: Path, mapping: object, ranks: int, visible: int, key: str, message: str
) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump({"mine": mapping}))
    for rank in range(ranks):
        with pytest.raises(UserError, match=message):
            select_gpu(str(file), key, RankInfo(rank, ranks, rank, ranks), visible)


def test_select_gpu_without_mapping_is_round_robin_per_host() -> None:
    assert [select_gpu(None, None, RankInfo(4 + rank, 8, rank, 4), visible=3) for rank in range(4)] == [0, 1, 2, 0]
    with pytest.raises(UserError, match=r"using_gpu is true, but PyTorch sees no GPU.*using_gpu: false"):
        select_gpu(None, None, RankInfo(1, 2, 1, 2), visible=0)


def test_check_gpu_rejects_missing_gpu() -> None:
    check_gpu(1, visible=2)
    with pytest.raises(UserError, match="gpu_id is 2, but the GPUs here go from 0 to 1"):
        check_gpu(2, visible=2)


def test_shipped_gpu_mappings_are_valid() -> None:
    """Each line's own words: `mpirun -n N`."""
    shipped = Path(__file__).parents[2] / "fedml_configs" / "gpus.yaml"
    expected = {
        "one_host_one_gpu": [0, 0, 0],
        "one_host_two_gpus": [0, 0, 1],
        "one_gpu_per_rank": [0, 1, 2, 3],
        "two_hosts": [0, 1, 0, 1],
    }
    assert list(yaml.safe_load(shipped.read_text())) == list(expected)
    for key, gpus_of_ranks in expected.items():
        ranks = len(gpus_of_ranks)
        found = [select_gpu(str(shipped), key, RankInfo(rank, ranks, rank, ranks), 4) for rank in range(ranks)]
        assert found == gpus_of_ranks
