"""The samples and the users that take part: some of all samples, and a seeded share of the users a source names."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from ..errors import UserError
from ..randomness import numpy_generator
from ..settings import DataSettings
from .fewer import evenly_spaced, without_period
from .sources.source import Labels, Source, Users

logger = logging.getLogger("mrtf_fedml")


def with_fewer_samples(source: Source, settings: DataSettings) -> Source:
    """`client_samples` of the clients' samples, where so many are asked for."""
    wanted, there = settings.client_samples, len(source.y_train)
    if wanted is None:
        return source
    rows = evenly_spaced("client_samples", wanted, there, f"the clients have only {there} samples")
    # Where classes take turns, every n-th sample may be of the same few of them, half of them at most.
    if 2 * len(np.unique(source.y_train[rows])) <= len(np.unique(source.y_train)):
        rows = without_period(wanted, there)
    users = None if source.users is None else replace(source.users, train=source.users.train[rows])
    return replace(source, x_train=source.x_train[rows], y_train=source.y_train[rows], users=users)


def with_chosen_users(source: Source, settings: DataSettings, seed: int) -> Source:
    """The samples of a share `dset_ratio` of the users, rounded down, chosen without replacement.

    Users are chosen from those with at least `min_samples` training samples. The server's set is then the
    union of the chosen users' test samples; where no such user has any (LEAF's split `-t user` gives other
    users to train/ than to test/), it is that of the same share of the others. Samples that no user made
    (-1) are always the server's.
    """
    if source.users is None:
        if settings.partition_method == "user":
            raise UserError(
                f"data_args.partition_method is user but {source.name} does not say whose a sample is; take femnist, "
                "shakespeare, an npz file with u_train or a csv file with data_args.user_column, or another method"
            )
        if settings.dset_ratio < 1:
            raise UserError(
                f"data_args.dset_ratio takes a share of the users, but {source.name} names none; leave it out"
            )
        return source
    users = source.users
    floor = settings.min_samples if settings.partition_method == "user" else 1
    able = np.flatnonzero(np.bincount(users.train, minlength=len(users.names)) >= floor)
    if len(able) == 0:
        raise UserError(f"no user of {source.name} has {floor} training samples; lower data_args.min_samples")
    chosen = _share(able, settings.dset_ratio, numpy_generator(seed, "users"))
    tested = np.unique(users.test[users.test >= 0])
    if len(tested) and not np.isin(able, tested).any():
        tested = _share(tested, settings.dset_ratio, numpy_generator(seed, "users", "server"))
    else:
        tested = np.intersect1d(tested, chosen)
    logger.info("%s: %d of %d users take part", source.name, len(chosen), len(users.names))
    return _restricted(source, users, chosen, tested)


def _share(users: Labels, ratio: float, generator: np.random.Generator) -> Labels:
    number = max(1, int(len(users) * ratio + 1e-9))
    return np.sort(generator.choice(users, size=number, replace=False))


def _restricted(source: Source, users: Users, chosen: Labels, tested: Labels) -> Source:
    """The source with the training samples of `chosen` and the test samples of `tested`; client k is `chosen[k]`."""
    train = np.flatnonzero(np.isin(users.train, chosen))
    test = np.flatnonzero(np.isin(users.test, [*tested.tolist(), -1]))
    if len(test) == 0:
        raise UserError(
            f"the {len(chosen)} chosen users of {source.name} have no test sample, so the server has nothing to label; "
            "raise data_args.dset_ratio"
        )
    return replace(
        source,
        x_train=source.x_train[train],
        y_train=source.y_train[train],
        x_test=source.x_test[test],
        y_test=None if source.y_test is None else source.y_test[test],
        ids=[source.ids[index] for index in test],
        users=Users(
            [users.names[user] for user in chosen],
            np.searchsorted(chosen, users.train[train]),
            np.full(len(test), -1, dtype=np.int64),
        ),
    )
