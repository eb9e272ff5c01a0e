"""A broker and a bucket, as the tests across silos have them."""

from tests.backends.cross_silo.conftest import mqtt_s3

__all__ = ["mqtt_s3"]
