"""The GPU of each rank, by FedML's mapping file or round robin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from ..errors import UserError
from .mpi import RankInfo


def check_gpu(gpu_id: int, visible: int) -> None:
    """Reject `using_gpu: true` if there is no GPU, or no GPU `gpu_id`."""
    if visible == 0:
        raise UserError(
            "using_gpu is true, but PyTorch sees no GPU here; set using_gpu: false (device_args), or install a driver "
            "and a PyTorch that fit (`mrtf doctor` shows what PyTorch sees)"
        )
    if gpu_id >= visible:
        raise UserError(f"gpu_id is {gpu_id}, but the GPUs here go from 0 to {visible - 1}; set another (device_args)")


def select_gpu(file: str | None, key: str | None, info: RankInfo, visible: int) -> int:
    """The GPU of a rank: from FedML's mapping, else round robin over the visible ones.

    >>> [select_gpu(None, None, RankInfo(rank, 3, rank, 3), visible=2) for rank in range(3)]
    [0, 1, 0]

    Args:
        file: FedML's `gpu_mapping_file`.
        key: FedML's `gpu_mapping_key`, the name of the mapping in that file.
        info: the position of the rank.
        visible: number of GPUs that this process sees.
    """
    if file is None:
        check_gpu(0, visible)
        return info.local_rank % visible
    mapping = _read_mapping(file, key)
    slots = [(host, gpu) for host, ranks in mapping.items() for gpu, number in enumerate(ranks) for _ in range(number)]
    if len(slots) != info.ranks:
        raise UserError(
            f"gpu_mapping_key {key!r} in {file!r} places {len(slots)} ranks, but mpirun started {info.ranks}; "
            "its numbers must sum to the number of ranks, rank 0 included"
        )
    host, gpu = slots[info.rank]
    last = max((index for index, number in enumerate(mapping[host]) if number), default=0)
    if last >= visible:
        raise UserError(
            f"gpu_mapping_key {key!r} in {file!r} uses {last + 1} GPUs of {host!r}, which has {visible}; "
            "use no more than that, or set using_gpu: false"
        )
    return gpu


def _read_mapping(file: str, key: str | None) -> Mapping[str, list[int]]:
    """FedML's mapping `key`: host -> number of ranks per GPU."""
    path = Path(os.path.expanduser(file))
    if not path.is_file():
        raise UserError(f"gpu_mapping_file {file!r} does not exist; correct the path or remove the key")
    try:
        mappings = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"gpu_mapping_file {file!r} is not valid YAML; correct it") from None
    known = list(mappings) if isinstance(mappings, Mapping) else []
    if key not in known:
        raise UserError(
            f"gpu_mapping_file {file!r} has no mapping {key!r} (gpu_mapping_key); known: {', '.join(map(str, known))}"
        )
    mapping = mappings[key]
    is_valid = isinstance(mapping, Mapping) and all(
        isinstance(ranks, list) and all(type(number) is int and number >= 0 for number in ranks)
        for ranks in mapping.values()
    )
    if not is_valid:
        raise UserError(
            f"gpu_mapping_key {key!r} in {file!r} must give each host a list with the number of ranks per GPU, such as "
            "`host1: [2, 1]`"
        )
    return mapping
