"""A broker and a bucket of the devices' own, as the silos' tests have them."""

from __future__ import annotations

from tests.backends.cross_silo.conftest import mqtt_s3

__all__ = ["mqtt_s3"]
