from collections.abc import Iterator

import pytest

from mrtf_fedml.rng import fork_rng


@pytest.fixture(autouse=True)
def _own_random_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test draws the same weights and inputs whichever tests ran before it."""
    with fork_rng(0, request.node.name):
        yield
