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
from tests.backends.cross_silo.broker import find_program, start_broker
from tests.backends.cross_silo.certificates import Authority
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


@pytest.fixture(scope="session")
def mqtt_s3_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The keys of comm_args for mosquitto, which asks for a certificate and a password, and for S3 over https."""
    folder = tmp_path_factory.mktemp("mqtt_s3_tls")
    authority = Authority(folder / "certificates")
    lines = mosquitto_tls_lines(folder, authority)
    storage, silo = (authority.party(name) for name in ("storage", "silo1"))
    broker_port, s3_port = free_ports(2)
    endpoint = f"https://127.0.0.1:{s3_port}"
    moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(s3_port), "--ssl"]
    moto += ["--ssl-cert", storage["tls_certificate"], "--ssl-key", storage["tls_key"]]
    with (folder / "moto.log").open("w") as log, start_broker(folder, broker_port, lines):
        process = subprocess.Popen(moto, stdout=log, stderr=log)
        try:
            s3 = bucket_client(endpoint, str(authority.file))
            wait_until(lambda: _made_bucket(s3), "moto's server answers")
            yield {
                "customized_training_mqtt_config": {
                    "BROKER_HOST": "127.0.0.1",
                    "BROKER_PORT": broker_port,
                    "MQTT_USER": "hospital",
                    "MQTT_PWD": "word",
                    "MQTT_KEEPALIVE": 60,
                    **silo,
                },
                "customized_training_s3_config": {
                    "BUCKET_NAME": "federation",
                    "CN_S3_AKI": "key",
                    "CN_S3_SAK": "secret",
                    "CN_S3_ENDPOINT": endpoint,
                    "tls_authority": str(authority.file),
                },
            }
        finally:
            process.kill()
            process.wait(10)


def mosquitto_tls_lines(folder: Path, authority: Authority) -> str:
    """Mosquitto's configuration for certificates of an authority, and the user `hospital` with the password `word`."""
    passwords = find_program("mosquitto_passwd")
    if passwords is None:
        pytest.skip("needs Debian's mosquitto")
    subprocess.run([passwords, "-b", "-c", str(folder / "passwords"), "hospital", "word"], check=True)
    broker = authority.party("broker")
    # Started as root, mosquitto becomes another user before it reads these files.
    for readable in (folder / "passwords", Path(broker["tls_key"])):
        readable.chmod(0o644)
    for parent in [authority.folder, folder, *folder.parents][:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    return (
        f"cafile {authority.file}\ncertfile {broker['tls_certificate']}\nkeyfile {broker['tls_key']}\n"
        f"require_certificate true\nallow_anonymous false\npassword_file {folder / 'passwords'}\n"
    )


def bucket_client(endpoint: str, authority: str | None = None) -> Any:
    """A client of the S3 interface at this address."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        verify=authority,
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
