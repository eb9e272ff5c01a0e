"""One lying silo of five, through the real training loop: its lie is harmless, or a warning names it."""

from __future__ import annotations

import pytest

from benchmarks.attacks import HARMLESS, HONEST, MAX_ERROR, WITHOUT, measure, names_silo

LIAR = 4


@pytest.fixture(scope="module")
def accuracy_without_it() -> float:
    """Of the federation without the lying silo."""
    return float(measure(5, "iid", 0, WITHOUT)["acc"])


@pytest.mark.parametrize(
    "lie", ["rotated x8, counts: 0.95 right", "sign flipped", "counts: refined all wrong", "variates x-8", "zeros"]
)
def test_lie_is_harmless_or_named(accuracy_without_it: float, lie: str) -> None:
    result = measure(5, "iid", 0, lie)
    is_named = names_silo(result, LIAR)
    assert is_named or accuracy_without_it - result["acc"] <= HARMLESS
    stated = result["estimate"]
    assert is_named or stated is None or abs(stated - result["acc"]) <= MAX_ERROR
    assert not any(names_silo(result, honest) for honest in range(LIAR))


def test_honest_federation_names_nobody() -> None:
    result = measure(5, "iid", 0, HONEST)
    assert not any(names_silo(result, silo) for silo in range(5))


def test_counts_beyond_the_silos_samples_are_not_used() -> None:
    result = measure(5, "iid", 0, "counts of 1000 times the samples")
    assert names_silo(result, LIAR)
    assert LIAR in result["listed"]
