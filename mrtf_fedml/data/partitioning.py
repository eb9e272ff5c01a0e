"""Partitions of the clients' samples: by label, by Dirichlet, by user, or i.i.d. (the paper's Sect. 3.3).

Each is a pure function of the labels and of a generator that only the partition uses. Internally a partition is one
array `owner` [N] with the client of each sample, -1 for a sample that no client holds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..config import DataSettings
from ..errors import UserError
from ..rng import numpy_generator
from .formatting import format_list

Integers = npt.NDArray[np.int64]

logger = logging.getLogger("mrtf_fedml")

#: Below this, a draw of Dir(alpha) is one-hot in floating point, and its logarithms could overflow.
SMALLEST_ALPHA = 1e-12


def partition_samples(
    labels: Integers, clients: int, classes: int, settings: DataSettings, seed: int
) -> list[Integers]:
    """Each client's indices into `labels` [N], ascending, disjoint and never empty.

    `classes` is C. `seed` is that of the partition, which is independent of the model's seed and of global state.
    """
    generator = numpy_generator(seed, "partition")
    if settings.partition_method == "label":
        return partition_by_label(labels, clients, classes, settings.classes_per_client, generator)
    if settings.partition_method == "dirichlet":
        alpha, min_samples = settings.partition_alpha, settings.min_samples
        return partition_by_dirichlet(labels, clients, classes, alpha, min_samples, generator)
    return partition_iid(labels, clients, generator)


def partition_by_label(
    labels: Integers, clients: int, classes: int, classes_per_client: int, generator: np.random.Generator
) -> list[Integers]:
    """Each client holds samples of exactly C-bar (`classes_per_client`) classes.

    A client gets the C-bar classes with the fewest holders so far, ties broken at random, so the numbers of
    holders differ by at most one. The samples of a class are shuffled and split evenly among its holders. If
    K * C-bar < C, the classes without a holder are excluded and named in a warning.
    """
    _check_enough_samples(labels, clients, 1)
    if classes_per_client > classes:
        raise UserError(
            f"data_args.classes_per_client is {classes_per_client} but the data has only {classes} classes; lower it"
        )
    present = np.unique(labels)
    if classes_per_client > len(present):
        raise UserError(
            f"data_args.classes_per_client is {classes_per_client} but only {len(present)} classes have "
            "training samples; lower it"
        )
    holders = _assign_classes(len(present), clients, classes_per_client, generator)
    without_holder = [int(label) for label, who in zip(present, holders, strict=True) if not who]
    if without_holder:
        logger.warning(
            "%d clients of %d classes each cannot hold all classes: the samples of class %s are excluded",
            clients,
            classes_per_client,
            format_list(without_holder),
        )
    owner = np.full(len(labels), -1, dtype=np.int64)
    for label, who in zip(present, holders, strict=True):
        samples = generator.permutation(np.flatnonzero(labels == label))
        if len(samples) < len(who):
            raise UserError(
                f"class {label} has {len(samples)} training samples for the {len(who)} clients that hold it; "
                "lower train_args.client_num_in_total or data_args.classes_per_client, or use "
                "partition_method: dirichlet"
            )
        if who:
            # Position i of n goes to holder floor(i * h / n) of h, so sizes differ by at most one.
            owner[samples] = np.asarray(who)[np.arange(len(samples)) * len(who) // len(samples)]
    return _indices_by_owner(owner, clients)


def partition_by_dirichlet(
    labels: Integers,
    clients: int,
    classes: int,
    alpha: float,
    min_samples: int,
    generator: np.random.Generator,
) -> list[Integers]:
    """Client k draws p_k ~ Dir(alpha) over the classes; class c is divided in proportion to p_k(c).

    All samples are used: the counts n_c * p_k(c) / sum_j p_j(c) are rounded cumulatively. A client with fewer than
    `min_samples` then receives single samples from the client that is largest at that moment.
    """
    _check_enough_samples(labels, clients, min_samples)
    proportions = _dirichlet_proportions(clients, classes, alpha, generator)
    owner = np.full(len(labels), -1, dtype=np.int64)
    for label in range(classes):
        samples = generator.permutation(np.flatnonzero(labels == label))
        ends = np.rint(np.cumsum(proportions[:, label]) * len(samples)).astype(np.int64)
        ends[-1] = len(samples)
        owner[samples] = np.searchsorted(ends, np.arange(len(samples)), side="right")
    _enforce_min_samples(owner, clients, min_samples, generator)
    return _indices_by_owner(owner, clients)


def partition_iid(labels: Integers, clients: int, generator: np.random.Generator) -> list[Integers]:
    """The samples in random order, distributed round-robin: sizes differ by at most one."""
    _check_enough_samples(labels, clients, 1)
    owner = generator.permutation(np.arange(len(labels), dtype=np.int64) % clients)
    return _indices_by_owner(owner, clients)


def partition_by_user(users: Integers, clients: int) -> list[Integers]:
    """Client k holds the samples of user k; `users` [N] has the user of each sample."""
    return _indices_by_owner(users, clients)


def warn_about_single_samples(sizes: Mapping[int, int]) -> None:
    """Log the clients with one sample: BatchNorm has no statistics with one value per channel."""
    single = [client for client, samples in sizes.items() if samples == 1]
    if single:
        logger.warning(
            "client %s has a single sample, for which BatchNorm may have no statistics (it then uses running ones); "
            "use fewer clients, data_args.min_samples: 2 (partition_method dirichlet or user), or a model without "
            "BatchNorm",
            format_list(single),
        )


def _check_enough_samples(labels: Integers, clients: int, min_samples: int) -> None:
    if clients * min_samples > len(labels):
        each = f" of at least {min_samples} samples (data_args.min_samples)" if min_samples > 1 else ""
        raise UserError(
            f"train_args.client_num_in_total asks for {clients} clients{each} but there are only "
            f"{len(labels)} training samples; lower it"
        )


def _assign_classes(
    classes: int, clients: int, classes_per_client: int, generator: np.random.Generator
) -> list[list[int]]:
    """For each class, the clients that hold it."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    counts = np.zeros(classes, dtype=np.int64)
    for client in range(clients):
        chosen = np.lexsort((generator.random(classes), counts))[:classes_per_client]
        counts[chosen] += 1
        for position in chosen:
            holders[position].append(client)
    return holders


def _dirichlet_proportions(
    clients: int, classes: int, alpha: float, generator: np.random.Generator
) -> npt.NDArray[np.float64]:
    """p_k(c) / sum_j p_j(c) [K, C], with p_k ~ Dir(alpha).

    Computed with logarithms, since for a small alpha every p_k(c) of a class may be below the smallest float. If
    G ~ Gamma(alpha + 1) and E ~ Exp(1), then log G - E / alpha is the logarithm of a Gamma(alpha) draw.
    """
    alpha = max(alpha, SMALLEST_ALPHA)
    size = (clients, classes)
    log_gamma = np.log(generator.standard_gamma(alpha + 1, size)) - generator.standard_exponential(size) / alpha
    log_p = log_gamma - np.logaddexp.reduce(log_gamma, axis=1, keepdims=True)
    return np.exp(log_p - np.logaddexp.reduce(log_p, axis=0, keepdims=True))


def _enforce_min_samples(owner: Integers, clients: int, min_samples: int, generator: np.random.Generator) -> None:
    """Move samples of the largest clients to those below `min_samples`; writes to `owner`."""
    counts = np.bincount(owner, minlength=clients)
    small_clients = np.flatnonzero(counts < min_samples)
    if not len(small_clients):
        return
    pools: dict[int, list[int]] = {}
    for client in small_clients:
        while counts[client] < min_samples:
            donor = int(counts.argmax())
            if donor not in pools:
                pools[donor] = generator.permutation(np.flatnonzero(owner == donor)).tolist()
            owner[pools[donor].pop()] = client
            counts[donor] -= 1
            counts[client] += 1


def _indices_by_owner(owner: Integers, clients: int) -> list[Integers]:
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner + 1, minlength=clients + 1))
    return np.split(order, ends)[1:-1]
