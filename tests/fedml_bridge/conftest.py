"""What this room's tests share: FedML as it was, afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mrtf_fedml


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
