"""Tables and configurations of TRPC and MQTT_S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.mqtt import _BROKER_KEYS, _check_keys, _make_s3_client
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.tls import TlsFiles
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.trpc import _read_rendezvous


def test_trpc_table_that_is_missing_or_malformed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trpc_master_config_path"):
        _read_rendezvous(str(tmp_path / "none"))
    (tmp_path / "table").write_text("127.0.0.1,1234\n")
    with pytest.raises(UserError, match="ip,port"):
        _read_rendezvous(str(tmp_path / "table"))


def test_mqtt_configuration_without_a_key_is_an_error() -> None:
    with pytest.raises(UserError, match=r"comm_args\.customized_training_mqtt_config with the keys BROKER_HOST"):
        _check_keys({}, "customized_training_mqtt_config", _BROKER_KEYS)
    with pytest.raises(UserError, match="'BROKER_PORT'"):
        _check_keys({"BROKER_HOST": "here"}, "customized_training_mqtt_config", _BROKER_KEYS)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"TLS_AUTHORITY": "a.pem"}, "'TLS_AUTHORITY'"),
        ({"tls_version": 3}, "'tls_version'"),
        ({"tls_certificate": "a.pem", "tls_key": "a.key"}, "tls_authority"),
        ({"tls_authority": "system", "tls_key": "a.key"}, "tls_certificate and tls_key"),
        ({"tls_authority": "no.pem"}, r"customized_training_mqtt_config\.tls_authority: 'no.pem'"),
        (
            {"tls_authority": "system", "tls_certificate": "no.pem", "tls_key": "no.key"},
            r"customized_training_mqtt_config\.tls_certificate: 'no.pem'",
        ),
    ],
)
def test_tls_keys_that_are_unknown_or_incomplete_are_errors(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        TlsFiles.from_config(config, "customized_training_mqtt_config").make_context()  # type: ignore[union-attr]


def test_bucket_with_tls_keys_and_plain_endpoint_is_an_error() -> None:
    config = {
        "BUCKET_NAME": "b",
        "CN_S3_AKI": "",
        "CN_S3_SAK": "",
        "CN_S3_ENDPOINT": "http://x:1",
        "tls_authority": "system",
    }
    with pytest.raises(UserError, match="CN_S3_ENDPOINT"):
        _make_s3_client(config)
