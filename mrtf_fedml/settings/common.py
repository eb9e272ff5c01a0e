"""`common_args`: what kind of run it is, and where it writes."""

from __future__ import annotations

from typing import Literal

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED


@dataclass(frozen=True, config=VALIDATED)
class CommonSettings:
    """`common_args` and `comm_args`: what kind of run, and where it writes."""

    training_type: Literal["simulation", "cross_silo", "cross_device"] = "simulation"
    backend: str = "sp"
    random_seed: int = 0
    run_dir: str | None = None
