"""Tables and configurations of TRPC and MQTT_S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.mqtt import _BROKER_KEYS, _check_keys
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
