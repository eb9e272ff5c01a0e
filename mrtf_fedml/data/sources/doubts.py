"""What is sound in a user's own data and yet seldom meant: it is read, and told of before anything trains."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter, defaultdict

import numpy as np

from ..listing import listed
from .source import Source

logger = logging.getLogger("mrtf_fedml")


def tell_doubts(source: Source, is_own: bool) -> None:
    """Classes that nobody can learn; and, of a user's own data, classes and ids that look like one and the same."""
    counts = np.bincount(source.y_train, minlength=source.class_num)
    absent = [source.class_names[index] for index in np.flatnonzero(counts == 0)]
    if absent:
        logger.warning("%s: no training sample of class %s; no client can learn it", source.name, listed(absent))
    # Letters are classes of their own, small and large.
    if not is_own or source.tokens:
        return
    for names in _alike(source.class_names):
        logger.warning(
            "%s: the classes %s differ in capitals, spaces or signs alone, and are taken as different classes; if they "
            "are one, write it in one way",
            source.name,
            listed(repr(name) for name in names),
        )
    twice = [name for name, times in Counter(source.ids).items() if times > 1]
    if twice:
        logger.warning(
            "%s: the server's samples have the id %s more than once; predictions.csv has them in the order in which "
            "they were given",
            source.name,
            listed(repr(name) for name in twice),
        )


def _alike(class_names: list[str]) -> list[list[str]]:
    """Names of several letters that a reader would take for one.

    >>> _alike(["cat", "Cat ", "dog", "a", "A"])
    [['cat', 'Cat ']]
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in class_names:
        groups["".join(unicodedata.normalize("NFKC", name).casefold().split())].append(name)
    return [names for key, names in groups.items() if len(names) > 1 and len(key) > 1]
