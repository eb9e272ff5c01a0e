"""What cannot run on devices is refused in one sentence, before a connection is made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mrtf_fedml.data import load
from mrtf_fedml.errors import UserError
from mrtf_fedml.fedml_bridge.arguments import arguments_from
from mrtf_fedml.fedml_bridge.runner import our_runner
from mrtf_fedml.settings import RunSettings
from tests.conftest import small_config

REFUSED = {
    "backend": ({"backend": "MQTT_S3"}, "devices are reached by MQTT_S3_MNN alone"),
    "client rule": ({"federated_optimizer": "FedProx"}, "a device does nothing else"),
    "privacy": ({"sigma": 0.1}, "no privacy could be promised"),
    "model": ({"model": "mlp"}, "which no device knows"),
    "enough": ({"min_silos": 5}, "lower it"),
}


def _start(config: dict[str, Any], model: Any = None) -> Any:
    settings = RunSettings.from_config(config)
    args = arguments_from(config, settings)
    return our_runner(args, torch.device("cpu"), load(settings), model)


@pytest.mark.parametrize("case", REFUSED)
def test_what_devices_cannot_do_is_refused(case: str) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        _start(small_config(**({"training_type": "cross_device", "backend": "MQTT_S3_MNN"} | changes)))


def test_ids_must_be_as_many_as_the_devices_and_the_run_a_number() -> None:
    config = small_config(training_type="cross_device", backend="MQTT_S3_MNN")
    for section, key, value, words in (
        ("train_args", "client_id_list", "[1, 2]", "names 2 devices"),
        ("train_args", "client_id_list", "[1, x]", "whole numbers"),
        ("common_args", "run_id", "mine", "whole number"),
    ):
        changed = {name: dict(values) for name, values in config.items()}
        changed[section][key] = value
        with pytest.raises(UserError, match=words):
            _start(changed)
