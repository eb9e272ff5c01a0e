"""The configuration of broker and bucket of a federation of devices."""

from __future__ import annotations

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.cross_device.transport import Bucket, _check_broker


def test_tls_keys_are_errors_and_not_ignored() -> None:
    broker = {"BROKER_HOST": "b", "BROKER_PORT": 1, "MQTT_USER": "", "MQTT_PWD": "", "MQTT_KEEPALIVE": 60}
    assert _check_broker(broker) == broker
    with pytest.raises(UserError, match=r"customized_training_mqtt_config\.tls_authority"):
        _check_broker({**broker, "tls_authority": "a.pem"})
    with pytest.raises(UserError, match=r"customized_training_s3_config\.tls_authority"):
        Bucket({"BUCKET_NAME": "b", "CN_S3_AKI": "", "CN_S3_SAK": "", "tls_authority": "a.pem"})
