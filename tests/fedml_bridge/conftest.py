"""Shared fixtures: a finished run, and the reset of FedML's singletons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mrtf_fedml
from tests.fedml_bridge.small_run import run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run; read-only."""
    return run(tmp_path_factory.mktemp("finished"), comm_round=3)


@pytest.fixture
def harmless_afterwards() -> Iterator[None]:
    """FedML keeps its attacks, defences and privacy in singletons that outlive a run."""
    yield
    from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy
    from fedml.core.security.fedml_attacker import FedMLAttacker
    from fedml.core.security.fedml_defender import FedMLDefender

    mrtf_fedml.unregister()
    for singleton in (FedMLDifferentialPrivacy, FedMLAttacker, FedMLDefender):
        singleton.get_instance().is_enabled = False
