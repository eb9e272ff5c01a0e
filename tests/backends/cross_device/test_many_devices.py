"""Many devices, few per round: memory, file handles and bucket of the server do not grow."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.backends.cross_device.federation import DeviceFederation
from tests.backends.cross_silo.conftest import bucket_client
from tests.backends.cross_silo.federation import wait_until
from tests.conftest import read_metrics

DEVICES, PER_ROUND, ROUNDS, SETTLED = 100, 10, 20, 5


@pytest.mark.slow
def test_memory_handles_and_bucket_do_not_grow_with_100_devices(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    s3 = mqtt_s3["customized_training_s3_config"]
    bucket = bucket_client(s3["CN_S3_ENDPOINT"])
    seen: list[tuple[int, int, int]] = []
    changes = {"client_num_per_round": PER_ROUND, "comm_round": ROUNDS, "federated_optimizer": "FedAvg"}
    with DeviceFederation(tmp_path, mqtt_s3, devices=DEVICES, partition_method="iid", **changes) as federation:
        devices = federation.emulate(f"1-{DEVICES}")
        server = federation.serve()
        for done in range(1, ROUNDS):
            wait_until(lambda done=done: federation.rounds_done() >= done, f"round {done} is done")
            objects = bucket.list_objects_v2(Bucket=s3["BUCKET_NAME"]).get("Contents", [])
            own = [entry for entry in objects if f"_{federation.run_id}_" in entry["Key"]]
            seen.append((_kilobytes(server.process.pid), _handles(server.process.pid), len(own)))
        assert server.wait() == 0, server.output
        assert devices.wait() == 0
    lines = read_metrics(federation.run_dir)
    assert all(len(line["clients"]) == PER_ROUND and not line["excluded_clients"] for line in lines)
    assert len({client for line in lines for client in line["clients"]}) > DEVICES / 2
    memory, handles = [entry[0] for entry in seen], [entry[1] for entry in seen]
    # Memory fluctuates, so medians of early and late rounds are compared.
    early, late = slice(SETTLED, 2 * SETTLED), slice(-SETTLED, None)
    assert median(memory[late]) - median(memory[early]) < 5_000, str(memory)
    assert median(handles[late]) - median(handles[early]) <= 2, str(handles)
    # The model of the round, and at most one update per selected device.
    assert max(objects for _, _, objects in seen) <= 1 + PER_ROUND


def _kilobytes(process: int | None) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def _handles(process: int | None) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))
