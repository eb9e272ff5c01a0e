"""Settings that devices do not support are errors, before a connection is made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mrtf_fedml.config import RunSettings
from mrtf_fedml.data import load
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.args import make_arguments
from mrtf_fedml.fedml_bridge.plugin import make_project_participant
from tests.conftest import small_config

UNSUPPORTED = {
    "backend": ({"backend": "MQTT_S3"}, "comm_args.backend"),
    "client rule": ({"federated_optimizer": "FedProx"}, "federated_optimizer 'FedProx'"),
    "privacy": ({"sigma": 0.1}, "dp_args"),
    "model": ({"model": "mlp"}, "model_args.model"),
}


def _start(config: dict[str, Any], model: Any = None) -> Any:
    settings = RunSettings.from_config(config)
    args = make_arguments(settings)
    return make_project_participant(args, torch.device("cpu"), load(settings), model)


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_setting_is_an_error(case: str) -> None:
    changes, words = UNSUPPORTED[case]
    with pytest.raises(UserError, match=words):
        _start(small_config(**({"training_type": "cross_device", "backend": "MQTT_S3_MNN"} | changes)))


def test_wrong_ids_and_run_id_are_errors() -> None:
    config = small_config(training_type="cross_device", backend="MQTT_S3_MNN")
    for section, key, value, words in (
        ("train_args", "client_id_list", "[1, 2]", "client_id_list has 2 devices"),
        ("train_args", "client_id_list", "[1, x]", "client_id_list"),
        ("common_args", "run_id", "mine", "common_args.run_id"),
    ):
        changed = {name: dict(values) for name, values in config.items()}
        changed[section][key] = value
        with pytest.raises(UserError, match=words):
            _start(changed)
