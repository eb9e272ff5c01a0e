"""Federations of emulated devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    s3 = mqtt_s3["customized_training_s3_config"]
    listed = bucket_client(s3["CN_S3_ENDPOINT"]).list_objects_v2(Bucket=s3["BUCKET_NAME"])
    assert not [entry["Key"] for entry in listed.get("Contents", []) if f"_{federation.run_id}_" in entry["Key"]]
