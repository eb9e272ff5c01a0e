"""Subsets of a source: some of the clients' samples (`client_samples`), a fraction of the users (`dset_ratio`)."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..config import DataSettings
from ..errors import UserError
from ..rng import numpy_generator
from .sources.source import Labels, Source, Users

logger = logging.getLogger("mrtf_fedml")

#: The fractional parts of its multiples are evenly distributed over [0, 1) and never repeat.
_GOLDEN_RATIO = (5**0.5 - 1) / 2


def evenly_spaced_rows(key: str, wanted: int, available: int, what: str) -> npt.NDArray[np.int64]:
    """`wanted` of the rows 0 to `available` - 1, evenly spaced, so that a file sorted by class keeps all classes.

    It needs no seed and reads no label.

    Args:
        key: the key of `data_args` that sets the number.
        wanted: the number of rows.
        available: the number of rows to choose from.
        what: the clause that the error message has if there are too few.

    >>> evenly_spaced_rows("server_samples", wanted=3, available=9, what="")
    array([0, 3, 6])
    """
    if wanted > available:
        raise UserError(f"data_args.{key} is {wanted} but {what}; lower it or leave it out")
    return np.arange(wanted) * available // wanted


def aperiodic_rows(wanted: int, available: int) -> npt.NDArray[np.int64]:
    """`wanted` of the rows 0 to `available` - 1: one from each of as many equal intervals, without a period.

    >>> aperiodic_rows(wanted=4, available=40)
    array([ 6, 12, 28, 34])
    """
    starts, ends = (np.arange(first, first + wanted) * available // wanted for first in (0, 1))
    offsets = np.arange(1, wanted + 1) * _GOLDEN_RATIO % 1
    return starts + (offsets * (ends - starts)).astype(np.int64)


def subsample_clients(source: Source, settings: DataSettings) -> Source:
    """The source with `client_samples` of the clients' samples, if that is set."""
    wanted, available = settings.client_samples, len(source.y_train)
    if wanted is None:
        return source
    rows = evenly_spaced_rows("client_samples", wanted, available, f"the clients have only {available} samples")
    # If classes alternate, every n-th sample may be of the same few classes: half of them at most.
    if 2 * len(np.unique(source.y_train[rows])) <= len(np.unique(source.y_train)):
        rows = aperiodic_rows(wanted, available)
    users = None if source.users is None else replace(source.users, train=source.users.train[rows])
    return replace(source, x_train=source.x_train[rows], y_train=source.y_train[rows], users=users)


def select_users(source: Source, settings: DataSettings, seed: int) -> Source:
    """The source with a fraction `dset_ratio` of the users, rounded down, drawn without replacement.

    Users are drawn from those with at least `min_samples` training samples. The server's set is the union of the
    drawn users' test samples. If no such user has any (LEAF's split `-t user` has different users in train/ and
    test/), it is that of the same fraction of the other users. Samples without a user (-1) stay in the server's set.
    """
    if source.users is None:
        if settings.partition_method == "user":
            raise UserError(
                f"data_args.partition_method is user but {source.name} has no users; use femnist, shakespeare, an npz "
                "file with u_train or a csv file with data_args.user_column, or another method"
            )
        if settings.dset_ratio < 1:
            raise UserError(
                f"data_args.dset_ratio selects a fraction of the users, but {source.name} has none; leave it out"
            )
        return source
    users = source.users
    min_samples = settings.min_samples if settings.partition_method == "user" else 1
    eligible = np.flatnonzero(np.bincount(users.train, minlength=len(users.names)) >= min_samples)
    if len(eligible) == 0:
        raise UserError(f"no user of {source.name} has {min_samples} training samples; lower data_args.min_samples")
    chosen = _draw_users(eligible, settings.dset_ratio, numpy_generator(seed, "users"))
    test_users = np.unique(users.test[users.test >= 0])
    if len(test_users) and not np.isin(eligible, test_users).any():
        test_users = _draw_users(test_users, settings.dset_ratio, numpy_generator(seed, "users", "server"))
    else:
        test_users = np.intersect1d(test_users, chosen)
    logger.info("%s: %d of %d users take part", source.name, len(chosen), len(users.names))
    return _restrict_to_users(source, users, chosen, test_users)


def _draw_users(users: Labels, fraction: float, generator: np.random.Generator) -> Labels:
    number = max(1, int(len(users) * fraction + 1e-9))
    return np.sort(generator.choice(users, size=number, replace=False))


def _restrict_to_users(source: Source, users: Users, chosen: Labels, test_users: Labels) -> Source:
    """The source with training samples of `chosen` and test samples of `test_users`; client k is `chosen[k]`."""
    train = np.flatnonzero(np.isin(users.train, chosen))
    test = np.flatnonzero(np.isin(users.test, [*test_users.tolist(), -1]))
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
