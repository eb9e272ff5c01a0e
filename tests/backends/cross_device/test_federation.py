"""Federations of emulated devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.fedml_bridge.backends.cross_device.server import make_converter
from mrtf_fedml.training.run_directory import RunDirectory
from mrtf_fedml.watch.live_run import LiveRun
from mrtf_fedml.watch.page import live_page
from tests.backends.cross_device.federation import DeviceFederation
from tests.backends.cross_silo.conftest import bucket_client
from tests.conftest import read_metrics


def test_accuracy_rises_and_bucket_is_empty_at_the_end(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    with DeviceFederation(tmp_path, mqtt_s3, comm_round=5, epochs=2, preset="tuned") as federation:
        devices = [federation.emulate("1-2"), federation.emulate("3"), federation.emulate("4")]
        server = federation.serve()
        assert server.wait() == 0, server.output
        assert [device.wait() for device in devices] == [0, 0, 0]
    lines = read_metrics(federation.run_dir)
    assert [line["clients"] for line in lines] == [[0, 1, 2, 3]] * 5
    assert lines[-1]["acc"] > 0.7 > lines[0]["acc"]
    names = {file.name for file in federation.run_dir.iterdir()}
    assert {"predictions.csv", "model.safetensors", "report.html", "summary.json", "probabilities.npy"} <= names
    assert "device 4</td>" in live_page(LiveRun(federation.run_dir))
    assert_messages_are_logged(federation.run_dir)
    s3 = mqtt_s3["customized_training_s3_config"]
    listed = bucket_client(s3["CN_S3_ENDPOINT"]).list_objects_v2(Bucket=s3["BUCKET_NAME"])
    assert not [entry["Key"] for entry in listed.get("Contents", []) if f"_{federation.run_id}_" in entry["Key"]]


@pytest.mark.slow
def test_devices_start_from_the_servers_initial_weights(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    """With a tiny learning rate the devices return what they have received."""
    file = tmp_path / "start.pt"
    changes = {"federated_optimizer": "FedAvg", "comm_round": 1, "learning_rate": 1e-9, "initial_weights": str(file)}
    with DeviceFederation(tmp_path, mqtt_s3, devices=2, **changes) as federation:
        converter = make_converter(RunSettings.from_config(federation.config), 10)
        given = {name: 0.5 * value for name, value in converter.torch_model.state_dict().items()}
        torch.save(given, file)
        devices, server = federation.emulate("1-2"), federation.serve()
        assert server.wait() == 0, server.output
        assert devices.wait() == 0
    weights = RunDirectory(federation.run_dir).read_model()[0]
    for name, value in given.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6)


def assert_messages_are_logged(run_dir: Path) -> None:
    """One line per message, with the device, the round and the tensors; the chain is intact."""
    assert main(["audit", "verify", str(run_dir)]) == 0
    lines = [json.loads(line) for line in (run_dir / "audit.jsonl").read_text().splitlines()]
    tensors = set(RunDirectory(run_dir).read_model()[0])
    for kind, direction in (("task", "sent"), ("update", "received")):
        found = [line for line in lines if (line["kind"], line.get("direction")) == (kind, direction)]
        rounds = {(line["peer"], line["round"]) for line in found}
        assert rounds == {(device, number) for device in range(1, 5) for number in range(5)}
        assert all(set(line["parts"]) == tensors and line["bytes"] > 10_000 for line in found)
    kinds = {(line["kind"], line.get("direction")) for line in lines}
    assert {("invitation", "sent"), ("status", "received"), ("finish", "sent")} <= kinds
