"""Settings of the tests with random examples: few, the same every time, without a database."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")

#: Files are written for each example, so a fixture's folder serves them all.
_FIXED: dict[str, Any] = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}

FEW = settings(max_examples=100, **_FIXED)
FEWER = settings(max_examples=30, **_FIXED)
