"""How much the tests with drawn examples draw: few, and the same ones every time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

#: Files are written for each example, so a fixture's folder serves them all.
_FIXED = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}

FEW = settings(max_examples=100, **_FIXED)
FEWER = settings(max_examples=30, **_FIXED)
