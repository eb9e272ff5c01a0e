"""A small federation in memory: three clients and a server, two linearly separable classes."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Raw features of very different scale; the second one determines the class.
X = np.random.default_rng(0).normal(size=(120, 3)) * [100, 1, 0.01] + [1000, 0, 5]
Y = (X[:, 1] > 0).astype(int)
TEXTS = np.array(["low", "high"])[Y]
SERVER = slice(90, 120)
#: What keeps a run to a second.
QUICK: dict[str, Any] = {"hidden_size": 16, "batch_size": 8, "refine_steps": 10, "threads": 1, "progress": False}


def clients(labels: Any = TEXTS) -> list[tuple[Any, Any]]:
    """Each with 30 samples."""
    return [(X[start : start + 30], labels[start : start + 30]) for start in (0, 30, 60)]
