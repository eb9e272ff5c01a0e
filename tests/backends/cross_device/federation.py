"""A server and emulated devices, each process forked from one that has imported FedML already."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.backends.cross_silo.federation import PATIENCE, Party
from tests.conftest import small_config, write_yaml


class DeviceFederation:
    """One configuration, its server, and processes that emulate its devices."""

    def __init__(self, folder: Path, mqtt_s3: dict[str, Any], devices: int = 4, **changes: Any) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.parties: list[Party] = []
        self.run_id = uuid.uuid4().int % 10**9
        settings = {
            "client_num_in_total": devices,
            "client_num_per_round": devices,
            "classes_per_client": 5,
            "comm_round": 3,
            "weight_decay": 0.0,
            "momentum": 0.1,
        }
        self.config = small_config(
            run_dir=str(self.run_dir), training_type="cross_device", backend="MQTT_S3_MNN", **(settings | changes)
        )
        self.config["common_args"]["run_id"] = str(self.run_id)
        self.comm = self.config["comm_args"]
        self.comm.update(mqtt_s3)
        self.comm.setdefault("silo_timeout", PATIENCE)
        self.comm.setdefault("start_timeout", PATIENCE)

    def __enter__(self) -> DeviceFederation:
        return self

    def __exit__(self, *_: Any) -> None:
        for party in self.parties:
            if party.process.is_alive():
                party.process.kill()
            party.process.join(10)

    def serve(self, *words: str) -> Party:
        """`mrtf run` of the server."""
        return self._add(_server, ["run", "--cf", str(self._file()), *words], "server")

    def resume(self) -> Party:
        """`mrtf run --resume` of the server."""
        secrets = f"customized_training_s3_config={self.comm['customized_training_s3_config']}"
        return self._add(_server, ["run", "--resume", str(self.run_dir), "--set", secrets], "server")

    def emulate(self, ids: str) -> Party:
        """A process that emulates the devices of these ids."""
        return self._add(_devices, ["--cf", str(self._file()), "--devices", ids], f"devices-{ids}")

    def rounds_done(self) -> int:
        metrics = self.run_dir / "metrics.jsonl"
        return metrics.read_text().count("\n") if metrics.exists() else 0

    def _file(self) -> Path:
        return write_yaml(self.folder / f"{len(self.parties)}.yaml", self.config)

    def _add(self, run: Any, words: list[str], name: str) -> Party:
        party = Party(run, words, self.folder / f"{name}-{len(self.parties)}.log")
        self.parties.append(party)
        return party


def _server(words: list[str]) -> int:
    from mrtf_fedml.cli import main

    return main(words)


def _devices(words: list[str]) -> int:
    from mrtf_fedml.fedml_bridge.backends.cross_device.emulator import main

    return main(words)
