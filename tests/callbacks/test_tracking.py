"""MLflow's REST interface and Prometheus's metrics, as a run uses them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mrtf_fedml.callbacks.tracking import MlflowTracker, PrometheusMetrics, numbers
from mrtf_fedml.cli import main
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError
from tests.backends.cross_silo.federation import free_ports, wait_until
from tests.conftest import read_metrics, small_config, write_yaml

LINE = {"round": 0, "acc": 0.5, "train_loss": 2.0, "clients": [1, 2], "excluded_clients": {"2": "late"}}


class Recorder(ThreadingHTTPServer):
    """Records requests and replies as a tracking server does."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fails = False
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do_GET(self) -> None:
        self._reply(404, {})

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.rpartition("mlflow/")[2]
        self.server.calls.append((name, content))
        replies = {"experiments/create": {"experiment_id": "7"}, "runs/create": {"run": {"info": {"run_id": "abc"}}}}
        self._reply(500 if self.server.fails else 200, replies.get(name, {}))

    def _reply(self, code: int, content: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        yield server
        server.shutdown()


def run_in(folder: Path) -> Any:
    return SimpleNamespace(directory=SimpleNamespace(path=folder), settings=RunSettings(), rounds=3)


def test_round_is_logged_to_a_new_run_and_a_resumed_run_continues_it(recorder: Recorder, tmp_path: Path) -> None:
    tracker = MlflowTracker(recorder.url + "/", "wards")
    tracker.on_start(run_in(tmp_path))
    tracker.on_round_end(run_in(tmp_path), LINE)
    tracker.on_end(run_in(tmp_path), {})
    names = [name for name, _ in recorder.calls]
    assert names[:2] == ["experiments/create", "runs/create"]
    assert names[-2:] == ["runs/log-batch", "runs/update"]
    metrics = recorder.calls[-2][1]["metrics"]
    assert {one["key"]: (one["value"], one["step"]) for one in metrics} == {
        "round": (0, 0),
        "acc": (0.5, 0),
        "train_loss": (2.0, 0),
    }
    parameters = [one for name, content in recorder.calls for one in content.get("params", [])]
    assert {"key": "train_args.federated_optimizer", "value": "MrTF"} in parameters
    recorder.calls.clear()
    MlflowTracker(recorder.url, "wards").on_start(run_in(tmp_path))
    assert [(name, content["run_id"]) for name, content in recorder.calls] == [("runs/update", "abc")]


def test_server_that_fails_later_is_a_warning_and_at_the_start_an_error(
    recorder: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = MlflowTracker(recorder.url, "wards")
    tracker.on_start(run_in(tmp_path))
    recorder.fails = True
    for _ in range(2):
        tracker.on_round_end(run_in(tmp_path), LINE)
    assert len([record for record in caplog.records if "MLflow" in record.getMessage()]) == 1
    with pytest.raises(UserError, match="mlflow_uri"):
        MlflowTracker(recorder.url, "wards").on_start(run_in(tmp_path / "other"))


def test_prometheus_reads_the_last_round_and_the_port_is_closed_at_the_end(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    metrics = PrometheusMetrics("127.0.0.1", port)
    metrics.on_start(run_in(tmp_path))
    metrics.on_round_end(run_in(tmp_path), LINE)
    metrics.on_round_end(run_in(tmp_path), {**LINE, "round": 1, "acc": 0.75})
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    for sample in ("mrtf_round 1.0", "mrtf_rounds 3.0", "mrtf_acc 0.75", "mrtf_excluded_clients 1.0"):
        assert f"\n{sample}\n" in text
    with pytest.raises(UserError, match="metrics_port"):
        PrometheusMetrics("127.0.0.1", port)
    metrics.on_end(run_in(tmp_path), {})
    PrometheusMetrics("127.0.0.1", port).on_end(run_in(tmp_path), {})


@pytest.mark.slow
def test_whole_run_is_on_a_real_mlflow_server(tmp_path: Path) -> None:
    """In an environment of its own, since MLflow and FedML cannot be installed together."""
    environment = Path(tempfile.gettempdir()) / "mrtf-mlflow"
    mlflow = shutil.which("mlflow", path=str(environment / "bin"))
    if mlflow is None:
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "-q", "mlflow"], check=True)
        mlflow = str(environment / "bin" / "mlflow")
    (port,) = free_ports(1)
    words = ["server", "--port", str(port), "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--workers", "1"]
    uri = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [mlflow, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_until(lambda: _responds(uri), "MLflow server", 180.0)
            config = small_config(run_dir=str(tmp_path / "run"), model="mlp", mlflow_uri=uri)
            assert main(["run", "--cf", str(write_yaml(tmp_path / "config.yaml", config))]) == 0
            run_id = (tmp_path / "run" / "mlflow_run_id").read_text().strip()
            reply = urllib.request.urlopen(f"{uri}/api/2.0/mlflow/runs/get?run_id={run_id}", timeout=20).read()
        finally:
            server.terminate()
    found = json.loads(reply)["run"]
    assert found["info"]["status"] == "FINISHED"
    logged = {one["key"]: one["value"] for one in found["data"]["metrics"]}
    assert logged == pytest.approx(numbers(read_metrics(tmp_path / "run")[-1]))
    assert {"key": "train_args.comm_round", "value": "2"} in found["data"]["params"]


def _responds(uri: str) -> bool:
    try:
        return urllib.request.urlopen(f"{uri}/health", timeout=5).status == 200
    except OSError:
        return False
