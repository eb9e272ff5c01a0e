"""Fixtures for federations: a broker, a bucket, and runs in one process to compare with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from mrtf_fedml.cli import main
from tests.backends.cross_silo.broker import start_broker
from tests.backends.cross_silo.federation import free_ports, wait_until
from tests.conftest import small_config, write_yaml


@pytest.fixture(scope="session")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run directory of the same run in one process, made once per set of settings."""
    known: dict[str, Path] = {}

    def run(silos: int, **changes: Any) -> Path:
        key = f"{silos} {sorted(changes.items())}"
        if key not in known:
            folder = tmp_path_factory.mktemp("one_process")
            changes = {"client_num_in_total": silos, "client_num_per_round": silos, "classes_per_client": 5} | changes
            config = small_config(run_dir=str(folder / "run"), **changes)
            assert main(["run", "--cf", str(write_yaml(folder / "config.yaml", config))]) == 0
            known[key] = folder / "run"
        return known[key]

    return run


@pytest.fixture(scope="session")
def mqtt_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The keys of comm_args for a real MQTT broker and a real S3 interface, both on this machine."""
    folder = tmp_path_factory.mktemp("mqtt_s3")
    broker_port, s3_port = free_ports(2)
    endpoint = f"http://127.0.0.1:{s3_port}"
    moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(s3_port)]
    with (folder / "moto.log").open("w") as log, start_broker(folder, broker_port):
        process = subprocess.Popen(moto, stdout=log, stderr=log)
        try:
            s3 = bucket_client(endpoint)
            wait_until(lambda: _made_bucket(s3), "moto's server answers")
            yield {
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
                    "CN_S3_ENDPOINT": endpoint,
                },
            }
        finally:
            process.kill()
            process.wait(10)


def bucket_client(endpoint: str) -> Any:
    """A client of the S3 interface at this address."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )


def _made_bucket(s3: Any) -> bool:
    try:
        s3.create_bucket(Bucket="federation")
    except (BotoCoreError, ClientError):
        return False
    return True
