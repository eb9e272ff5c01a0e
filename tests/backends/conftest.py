"""What the tests of several backends share."""

from tests.backends.cross_silo.conftest import one_process

__all__ = ["one_process"]
