"""`common_args`: what kind of run it is, and where it writes."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from .kinds import VALIDATED


@dataclass(frozen=True, config=VALIDATED)
class CommonSettings:
    """`common_args` and `comm_args`: what kind of run, and where it writes."""

    training_type: Literal["simulation", "cross_silo", "cross_device"] = "simulation"
    backend: str = "sp"
    random_seed: int = 0
    #: The folder that the run writes; `runs/<dataset>-<algorithm>-<time>` where it is not given.
    run_dir: str | None = None
    #: `package.module:Class`, each a subclass of mrtf_fedml.Callback, beside those that every run has.
    callbacks: list[str] = field(default_factory=list)
