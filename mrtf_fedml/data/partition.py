"""Who owns which of the clients' samples: by label, by Dirichlet, by user, or alike (the paper's Sect. 3.3).

Each way is a pure function of the labels and of a generator that serves the split alone. Inside, a split is
one array `owner` [N] that says which client holds each sample, -1 where none does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..errors import UserError
from ..randomness import numpy_generator
from ..settings import DataSettings
from .listing import listed

Integers = npt.NDArray[np.int64]

logger = logging.getLogger("mrtf_fedml")

#: Below this, a draw of Dir(alpha) is one-hot to every digit of a float, and its logarithms could overflow.
SMALLEST_ALPHA = 1e-12


def partition(labels: Integers, clients: int, classes: int, settings: DataSettings, seed: int) -> list[Integers]:
    """Each client's indices into `labels` [N], ascending, disjoint and never empty.

    `classes` is C, `seed` that of the split: neither the model's seed nor any global state has a part in it.
    """
    generator = numpy_generator(seed, "partition")
    if settings.partition_method == "label":
        return by_label(labels, clients, classes, settings.classes_per_client, generator)
    if settings.partition_method == "dirichlet":
        alpha, floor = settings.partition_alpha, settings.min_samples
        return by_dirichlet(labels, clients, classes, alpha, floor, generator)
    return iid(labels, clients, generator)


def by_label(
    labels: Integers, clients: int, classes: int, classes_per_client: int, generator: np.random.Generator
) -> list[Integers]:
    """Each client sees exactly C-bar (`classes_per_client`) classes.

    A client gets the C-bar classes that the fewest hold so far, ties broken at random, so the numbers of
    holders differ by one at most. A class's samples are shuffled and split evenly among its holders. Where K
    * C-bar < C, the classes that nobody holds are left out and named in a warning.
    """
    _check_enough(labels, clients, 1)
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
    holders = _deal(len(present), clients, classes_per_client, generator)
    unheld = [int(label) for label, who in zip(present, holders, strict=True) if not who]
    if unheld:
        logger.warning(
            "%d clients of %d classes each cannot hold all classes: the samples of class %s are left out",
            clients,
            classes_per_client,
            listed(unheld),
        )
    owner = np.full(len(labels), -1, dtype=np.int64)
    for label, who in zip(present, holders, strict=True):
        samples = generator.permutation(np.flatnonzero(labels == label))
        if len(samples) < len(who):
            raise UserError(
                f"class {label} has {len(samples)} training samples for the {len(who)} clients that hold it; "
                "lower train_args.client_num_in_total or data_args.classes_per_client, or take "
                "partition_method: dirichlet"
            )
        if who:
            # Position i of n belongs to holder floor(i * h / n) of h: shares differ by one at most.
            owner[samples] = np.asarray(who)[np.arange(len(samples)) * len(who) // len(samples)]
    return _indices_by_owner(owner, clients)


def by_dirichlet(
    labels: Integers,
    clients: int,
    classes: int,
    alpha: float,
    min_samples: int,
    generator: np.random.Generator,
) -> list[Integers]:
    """Client k draws p_k ~ Dir(alpha) over the classes; class c is shared in proportion to p_k(c).

    All samples are used: the shares n_c * p_k(c) / sum_j p_j(c) are rounded cumulatively. Clients that then
    hold fewer than `min_samples` are topped up, sample by sample, from whichever client is the largest.
    """
    _check_enough(labels, clients, min_samples)
    shares = _dirichlet_shares(clients, classes, alpha, generator)
    owner = np.full(len(labels), -1, dtype=np.int64)
    for label in range(classes):
        samples = generator.permutation(np.flatnonzero(labels == label))
        ends = np.rint(np.cumsum(shares[:, label]) * len(samples)).astype(np.int64)
        ends[-1] = len(samples)
        owner[samples] = np.searchsorted(ends, np.arange(len(samples)), side="right")
    _top_up(owner, clients, min_samples, generator)
    return _indices_by_owner(owner, clients)


def iid(labels: Integers, clients: int, generator: np.random.Generator) -> list[Integers]:
    """The samples shuffled and dealt in turn: sizes differ by one at most."""
    _check_enough(labels, clients, 1)
    owner = generator.permutation(np.arange(len(labels), dtype=np.int64) % clients)
    return _indices_by_owner(owner, clients)


def by_user(users: Integers, clients: int) -> list[Integers]:
    """Client k owns the samples of user k; `users` [N] says whose each is."""
    return _indices_by_owner(users, clients)


def warn_of_single_samples(sizes: Mapping[int, int]) -> None:
    """Tell which clients have one sample: a BatchNorm that sees one value per channel has no statistics to take."""
    single = [client for client, samples in sizes.items() if samples == 1]
    if single:
        logger.warning(
            "client %s has a single sample, of which BatchNorm may have no statistics (it then takes running ones); "
            "ask for fewer clients, set data_args.min_samples: 2 (partition_method dirichlet or user), or take a model "
            "without BatchNorm",
            listed(single),
        )


def _check_enough(labels: Integers, clients: int, min_samples: int) -> None:
    if clients * min_samples > len(labels):
        each = f" of at least {min_samples} samples (data_args.min_samples)" if min_samples > 1 else ""
        raise UserError(
            f"train_args.client_num_in_total asks for {clients} clients{each} but there are only "
            f"{len(labels)} training samples; lower it"
        )


def _deal(classes: int, clients: int, each: int, generator: np.random.Generator) -> list[list[int]]:
    """For each class, the clients that hold it."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    held = np.zeros(classes, dtype=np.int64)
    for client in range(clients):
        chosen = np.lexsort((generator.random(classes), held))[:each]
        held[chosen] += 1
        for position in chosen:
            holders[position].append(client)
    return holders


def _dirichlet_shares(
    clients: int, classes: int, alpha: float, generator: np.random.Generator
) -> npt.NDArray[np.float64]:
    """p_k(c) / sum_j p_j(c) [K, C], with p_k ~ Dir(alpha).

    Computed with logarithms, since for a small alpha a class may have no mass above the smallest float in any
    p_k. If G ~ Gamma(alpha + 1) and E ~ Exp(1), then log G - E / alpha is the logarithm of a Gamma(alpha)
    draw.
    """
    alpha = max(alpha, SMALLEST_ALPHA)
    size = (clients, classes)
    log_gamma = np.log(generator.standard_gamma(alpha + 1, size)) - generator.standard_exponential(size) / alpha
    log_p = log_gamma - np.logaddexp.reduce(log_gamma, axis=1, keepdims=True)
    return np.exp(log_p - np.logaddexp.reduce(log_p, axis=0, keepdims=True))


def _top_up(owner: Integers, clients: int, min_samples: int, generator: np.random.Generator) -> None:
    """Give samples of the largest clients to those below the floor, in `owner` itself."""
    counts = np.bincount(owner, minlength=clients)
    needy = np.flatnonzero(counts < min_samples)
    if not len(needy):
        return
    pools: dict[int, list[int]] = {}
    for client in needy:
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
