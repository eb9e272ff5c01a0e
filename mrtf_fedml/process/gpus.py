"""Which GPU a rank computes with, by FedML's mapping file or by turns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from ..errors import UserError
from .start import Place


def check_gpus(gpu_id: int, visible: int) -> None:
    """Refuse `using_gpu: true` where there is no GPU, or not the one that was asked for."""
    if visible == 0:
        raise UserError(
            "using_gpu is true, but PyTorch sees no GPU here; set using_gpu: false (device_args), or install a driver "
            "and a PyTorch that fit (`mrtf doctor` tells what is seen)"
        )
    if gpu_id >= visible:
        raise UserError(f"gpu_id is {gpu_id}, but the GPUs here go from 0 to {visible - 1}; set another (device_args)")


def chosen_gpu(file: str | None, key: str | None, place: Place, visible: int) -> int:
    """The GPU of a rank: as FedML's mapping says, else spread over those visible.

    >>> [chosen_gpu(None, None, Place(rank, 3, rank, 3), visible=2) for rank in range(3)]
    [0, 1, 0]

    Args:
        file: FedML's `gpu_mapping_file`.
        key: FedML's `gpu_mapping_key`, the mapping's name in it.
        place: of the rank.
        visible: how many GPUs this process sees.
    """
    if file is None:
        check_gpus(0, visible)
        return place.local_rank % visible
    mapping = _read_mapping(file, key)
    seats = [(host, gpu) for host, ranks in mapping.items() for gpu, number in enumerate(ranks) for _ in range(number)]
    if len(seats) != place.ranks:
        raise UserError(
            f"gpu_mapping_key {key!r} in {file!r} places {len(seats)} ranks, but mpirun started {place.ranks}; "
            "its numbers must add up to the ranks, rank 0 included"
        )
    host, gpu = seats[place.rank]
    most = max((index for index, number in enumerate(mapping[host]) if number), default=0)
    if most >= visible:
        raise UserError(
            f"gpu_mapping_key {key!r} in {file!r} uses {most + 1} GPUs of {host!r}, which has {visible}; "
            "name no more than there are, or set using_gpu: false"
        )
    return gpu


def _read_mapping(file: str, key: str | None) -> Mapping[str, list[int]]:
    """FedML's mapping `key`: for each host, how many ranks each of its GPUs serves."""
    place = Path(file).expanduser()
    if not place.is_file():
        raise UserError(f"gpu_mapping_file {file!r} does not exist; mend the path or leave it out")
    try:
        mappings = yaml.safe_load(place.read_text())
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"gpu_mapping_file {file!r} is not valid YAML; mend it") from None
    known = list(mappings) if isinstance(mappings, Mapping) else []
    if key not in known:
        raise UserError(
            f"gpu_mapping_file {file!r} has no mapping {key!r} (gpu_mapping_key); known: {', '.join(map(str, known))}"
        )
    mapping = mappings[key]
    well = isinstance(mapping, Mapping) and all(
        isinstance(ranks, list) and all(type(number) is int and number >= 0 for number in ranks)
        for ranks in mapping.values()
    )
    if not well:
        raise UserError(
            f"gpu_mapping_key {key!r} in {file!r} must give each host a list of how many ranks each GPU serves, such "
            "as `host1: [2, 1]`"
        )
    return mapping
