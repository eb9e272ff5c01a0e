"""A FedML program with FedMLRunner, and all bytes that it sends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pytest

from mrtf_fedml.config import RunSettings
from mrtf_fedml.fedml_bridge.backends.cross_device.server import make_converter
from mrtf_fedml.fedml_bridge.backends.cross_device.torch_models import to_device_inputs
from tests.backends.cross_device.federation import DeviceFederation
from tests.backends.cross_silo.federation import Party
from tests.backends.cross_silo.test_capture import Tap, is_sent
from tests.conftest import read_metrics, write_yaml

SAMPLES = 24


def run_program(words: list[str]) -> int:
    """The user's program, with two lines for mrtf_fedml."""
    import fedml
    from fedml import FedMLRunner

    import mrtf_fedml

    mrtf_fedml.register()
    sys.argv = ["server.py", *words]
    args = fedml.init()
    FedMLRunner(args, fedml.device.get_device(args), server_data(), None).run()
    return 0


def server_data() -> list[Any]:
    """FedML's eight-tuple of a server with unlabelled images only; four classes."""
    import torch

    inputs = torch.rand(SAMPLES, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    unknown = torch.full((SAMPLES,), -1)
    return [0, SAMPLES, None, [(inputs, unknown)], {}, {}, {}, 4]


def write_devices_data(file: Path) -> Path:
    draw = np.random.default_rng(1)
    images = draw.random((40, 28, 28), dtype=np.float32)
    labels = np.arange(40) % 4
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:4]}
    np.savez(file, **arrays, class_names=np.array(list("abcd")))
    return file


@pytest.mark.slow
def test_fedml_program_runs_and_sends_no_sample_of_the_server(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    broker, s3 = mqtt_s3["customized_training_mqtt_config"], mqtt_s3["customized_training_s3_config"]
    taps = [Tap(broker["BROKER_PORT"]), Tap(urlparse(s3["CN_S3_ENDPOINT"]).port or 0)]
    tapped = {
        "customized_training_mqtt_config": broker | {"BROKER_PORT": taps[0].port},
        "customized_training_s3_config": s3 | {"CN_S3_ENDPOINT": f"http://127.0.0.1:{taps[1].port}"},
    }
    changes = {"dataset": "npz", "data_file": str(write_devices_data(tmp_path / "devices.npz")), "comm_round": 2}
    with DeviceFederation(tmp_path, tapped, devices=2, partition_method="iid", **changes) as federation:
        file = write_yaml(tmp_path / "fedml_config.yaml", federation.config)
        server = Party(run_program, ["--cf", str(file)], tmp_path / "server.log")
        federation.parties.append(server)
        devices = federation.emulate("1-2")
        assert server.wait() == 0, server.output
        assert devices.wait() == 0
    for tap in taps:
        tap.close()
    assert [line["clients"] for line in read_metrics(federation.run_dir)] == [[0, 1], [0, 1]]
    assert (federation.run_dir / "predictions.csv").read_text().count("\n") == SAMPLES + 1

    captured = b"".join(content for tap in taps for content in tap.recorded)
    converter = make_converter(RunSettings.from_config(federation.config), 4)
    start = converter.torch_model.state_dict()["fc1.bias"].numpy()
    assert is_sent(start, captured), "the weights of round 0 must be recorded"
    inputs = server_data()[3][0][0]
    for sample in to_device_inputs(inputs, (1, 28, 28)).numpy():
        # A frame boundary could split an image, but not each of its rows.
        assert not any(is_sent(row, captured) for row in sample[0])
