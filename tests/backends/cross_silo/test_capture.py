"""All bytes that a run sends are recorded, and contain no sample."""

from __future__ import annotations

import socket
import threading
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from mrtf_fedml.data import load
from mrtf_fedml.models import create_model
from tests.backends.cross_silo.federation import Federation, free_ports, grpc_table
from tests.conftest import small_settings


class Tap:
    """Listens on a port, forwards everything to another, and keeps a copy."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.recorded: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while content := source.recv(1 << 16):
                self.recorded.append(content)
                sink.sendall(content)
        except OSError:
            pass
        finally:
            sink.close()


def is_sent(value: np.ndarray, captured: bytes) -> bool:
    """Whether an array's numbers are in the capture, in any of the types in which they could travel."""
    kinds = (np.float32, np.float64, np.float16)
    return any(value.astype(kind).tobytes() in captured for kind in kinds)


@pytest.mark.slow
def test_no_sample_is_sent_over_the_sockets(tmp_path: Path) -> None:
    silos = 2
    with Federation(tmp_path, silos, comm_round=2) as federation:
        taps = [Tap(port) for port in federation.ports]
        # Each party listens on its own port and reaches the others through their taps.
        for rank in range(silos + 1):
            config = deepcopy(federation.config)
            ports = [federation.ports[r] if r == rank else tap.port for r, tap in enumerate(taps)]
            config["comm_args"]["grpc_ipconfig_path"] = str(grpc_table(tmp_path / f"{rank}.csv", ports))
            federation.start(rank, config=config)
        assert [party.wait() for party in federation.parties] == [0] * (silos + 1)
        for tap in taps:
            tap.close()
    captured = b"".join(content for tap in taps for content in tap.recorded)
    settings = small_settings(client_num_in_total=silos, client_num_per_round=silos, classes_per_client=5)
    dataset = load(settings)
    model = create_model(settings.model, dataset.input_shape, dataset.class_num, settings.common.random_seed)
    biases = [value.numpy() for key, value in model.state_dict().items() if key.endswith("bias")]
    assert all(is_sent(bias, captured) for bias in biases), "the weights of round 0 must be recorded"
    samples = dataset.server_inputs.numpy().reshape(len(dataset.server_inputs), -1)
    # A frame boundary could split a sample, but not also every part of one.
    rows = [sample.reshape(8, 8)[3:5].ravel() for sample in samples]
    for whole, part in zip(samples, rows, strict=True):
        assert not is_sent(whole, captured)
        assert not is_sent(part, captured)
    owned = dataset[5][0].inputs.numpy().reshape(len(dataset[5][0].inputs), -1)
    assert not any(is_sent(sample, captured) for sample in owned), "nor any sample of the silos"


def test_tap_records_sent_arrays() -> None:
    (target,) = free_ports(1)
    sample = np.linspace(-1, 1, 64, dtype=np.float32)
    with socket.create_server(("127.0.0.1", target)) as server:
        tap = Tap(target)
        with socket.create_connection(("127.0.0.1", tap.port)) as client:
            client.sendall(b"before" + sample.tobytes() + b"after")
            received, _ = server.accept()
            content = b""
            while len(content) < sample.nbytes + 11:
                content += received.recv(1 << 16)
            received.close()
        tap.close()
    assert is_sent(sample, b"".join(tap.recorded))
