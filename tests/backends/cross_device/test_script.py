"""launch/cross_device.sh: a dry run from one command, with its own broker and bucket."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backends.cross_device.federation import DeviceFederation
from tests.backends.cross_silo.federation import PATIENCE, free_ports
from tests.conftest import write_yaml

ROOT = Path(__file__).parents[3]


def _run(folder: Path, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The script, in the environment that runs this test."""
    variables = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", str(ROOT / "launch" / "cross_device.sh"), str(write_yaml(folder / "config.yaml", config))]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=3 * PATIENCE)


@pytest.mark.slow
def test_script_runs_broker_bucket_server_and_devices(tmp_path: Path) -> None:
    broker_port, s3_port = free_ports(2)
    address = {
        "customized_training_mqtt_config": {
            "BROKER_HOST": "127.0.0.1",
            "BROKER_PORT": broker_port,
            "MQTT_USER": "",
            "MQTT_PWD": "",
            "MQTT_KEEPALIVE": 60,
        },
        "customized_training_s3_config": {
            "BUCKET_NAME": "federation",
            "CN_S3_AKI": "key",
            "CN_S3_SAK": "secret",
            "CN_S3_ENDPOINT": f"http://127.0.0.1:{s3_port}",
        },
    }
    federation = DeviceFederation(tmp_path, address, devices=3, comm_round=1, model="resnet20")
    ended = _run(tmp_path, federation.config)
    assert ended.returncode == 0, ended.stderr
    assert "starting 3 emulated devices" in ended.stderr
    assert "samples labelled" in ended.stdout
    assert (federation.run_dir / "predictions.csv").exists()
    for trace in (str(tmp_path), f"-p {broker_port}", f"-p {s3_port}"):
        left = subprocess.run(["pgrep", "-f", "--", trace], capture_output=True, text=True)
        assert left.stdout == "", "a process is still running"


@pytest.mark.slow
def test_script_with_wrong_training_type_ends_with_code_2(tmp_path: Path) -> None:
    federation = DeviceFederation(tmp_path, {})
    federation.config["common_args"]["training_type"] = "simulation"
    ended = _run(tmp_path, federation.config)
    assert ended.returncode == 2
    assert "common_args.training_type" in ended.stderr
