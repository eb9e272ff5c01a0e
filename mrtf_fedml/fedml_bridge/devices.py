"""What a process computes with: how many threads, and which GPU if any."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fedml
import torch
import yaml

from ..errors import UserError
from .mpi.start import Place

_ALONE = Place()


def set_threads(threads: int | None, default: int | None = None) -> int:
    """Let PyTorch use so many threads; a set OMP_NUM_THREADS wins, and all cores are the default.

    The number belongs to a run's identity: sums are split among threads, so other counts differ in the last bits.

    Args:
        threads: what the user asked for.
        default: what they get without asking, where it is not all cores.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    given = int(wanted) if wanted.isdigit() and int(wanted) > 0 else threads
    number = given or default or len(os.sched_getaffinity(0))
    torch.set_num_threads(number)
    return number


def divided_threads(comm: Any, local_ranks: int) -> int:
    """The cores of a host divided among its ranks; the least of all hosts, so that every rank has the same number."""
    from mpi4py import MPI

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    # mpirun may have bound each rank to some cores: together they have the union.
    cores = set().union(*host.allgather(os.sched_getaffinity(0)))
    host.Free()
    return comm.allreduce(max(1, len(cores) // local_ranks), op=MPI.MIN)


def device_of_run(args: Any, place: Place = _ALONE) -> torch.device:
    """The device of this process; FedML's own choice, except under MPI, where it needs a mapping even without a GPU."""
    if (args.training_type, args.backend) != ("simulation", "MPI"):
        return fedml.device.get_device(args)
    if not getattr(args, "using_gpu", False):
        return torch.device("cpu")
    gpu = chosen_gpu(
        getattr(args, "gpu_mapping_file", None),
        getattr(args, "gpu_mapping_key", None),
        place,
        visible=torch.cuda.device_count(),
    )
    if gpu is None:
        return torch.device("cpu")
    args.gpu_id = gpu
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def chosen_gpu(file: str | None, key: str | None, place: Place, visible: int) -> int | None:
    """The GPU of a rank: as FedML's mapping says, else spread over those visible; None is the CPU.

    >>> [chosen_gpu(None, None, Place(rank, 3, rank, 3), visible=2) for rank in range(3)]
    [0, 1, 0]

    Args:
        file: FedML's `gpu_mapping_file`.
        key: FedML's `gpu_mapping_key`, the mapping's name in it.
        place: of the rank.
        visible: how many GPUs this process sees.
    """
    if file is None:
        return place.local_rank % visible if visible else None
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
    except (yaml.YAMLError, UnicodeDecodeError):
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
