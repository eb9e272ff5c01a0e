"""Which GPU a rank computes with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrtf_fedml.errors import UserError
from mrtf_fedml.process.gpus import check_gpus, chosen_gpu
from mrtf_fedml.process.start import Place


def gpus(tmp_path: Path, mapping: object, ranks: int, visible: int, key: str = "mine") -> list[int]:
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump({"mine": mapping}))
    return [chosen_gpu(str(file), key, Place(rank, ranks, rank, ranks), visible) for rank in range(ranks)]


def test_fedmls_mapping_says_which_gpu_serves_which_rank(tmp_path: Path) -> None:
    assert gpus(tmp_path, {"one": [2, 1], "two": [0, 2]}, ranks=5, visible=2) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("mapping", "ranks", "visible", "key", "complaint"),
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
def test_a_mapping_that_cannot_be_is_refused_by_every_rank(
    tmp_path: Path, mapping: object, ranks: int, visible: int, key: str, complaint: str
) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump({"mine": mapping}))
    for rank in range(ranks):
        with pytest.raises(UserError, match=complaint):
            chosen_gpu(str(file), key, Place(rank, ranks, rank, ranks), visible)


def test_without_a_mapping_ranks_are_spread_over_the_gpus_of_their_host() -> None:
    assert [chosen_gpu(None, None, Place(4 + rank, 8, rank, 4), visible=3) for rank in range(4)] == [0, 1, 2, 0]
    with pytest.raises(UserError, match=r"using_gpu is true, but PyTorch sees no GPU.*using_gpu: false"):
        chosen_gpu(None, None, Place(1, 2, 1, 2), visible=0)


def test_one_process_takes_a_gpu_that_is_there() -> None:
    check_gpus(1, visible=2)
    with pytest.raises(UserError, match="gpu_id is 2, but the GPUs here go from 0 to 1"):
        check_gpus(2, visible=2)


def test_the_shipped_mappings_serve_the_ranks_that_they_name() -> None:
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
        found = [chosen_gpu(str(shipped), key, Place(rank, ranks, rank, ranks), 4) for rank in range(ranks)]
        assert found == gpus_of_ranks
