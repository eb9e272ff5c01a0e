"""Tracking of a round's metrics by MLflow, and metrics for Prometheus. Those that need FedML are in fedml_bridge.

MLflow's Python packages cannot be installed with FedML (they need importlib_metadata 3.7 or later, FedML's fastapi-cli
one below 2), so this uses the REST interface of a tracking server.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.sections import TrackingSettings
from ..errors import UserError
from .base import Callback

if TYPE_CHECKING:
    from ..training.loop import Run

_log = logging.getLogger(__name__)

#: The file in the run directory with the id of MLflow's run, so that a resumed run continues it.
_RUN_ID = "mlflow_run_id"
_TIMEOUT = 10.0
#: Most characters of a parameter's value that MLflow's servers accept.
_MAX_PARAMETER = 500
_PARAMETERS_PER_REQUEST = 100


def trackers(settings: TrackingSettings) -> list[Callback]:
    """The callbacks that `tracking_args` enable and that need no FedML."""
    callbacks: list[Callback] = []
    if settings.mlflow_uri is not None:
        callbacks.append(MlflowTracker(settings.mlflow_uri, settings.mlflow_experiment))
    if settings.metrics_port is not None:
        callbacks.append(PrometheusMetrics(settings.metrics_host, settings.metrics_port))
    return callbacks


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a round's metrics.

    >>> numbers({"round": 3, "acc": 0.5, "clients": [1], "is_last": True})
    {'round': 3, 'acc': 0.5}
    """
    return {key: value for key, value in line.items() if isinstance(value, int | float) and not isinstance(value, bool)}


class MlflowTracker(Callback):
    """`mlflow_uri`: a run on an MLflow tracking server, with the settings as parameters.

    User and password are read from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, a token from
    MLFLOW_TRACKING_TOKEN. If the server cannot be reached at the start, the run does not start; later it only warns.
    """

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri = uri.rstrip("/")
        self._experiment = experiment
        self._run_id = ""
        self._has_warned = False

    def on_start(self, run: Run) -> None:
        """Create the run there; a resumed run continues it."""
        file = Path(run.directory.path) / _RUN_ID
        try:
            if file.is_file():
                self._run_id = file.read_text().strip()
                self._call("runs/update", run_id=self._run_id, status="RUNNING")
                return
            name = Path(run.directory.path).name
            content = self._call(
                "runs/create", experiment_id=self._experiment_id(), run_name=name, start_time=_milliseconds()
            )
            self._run_id = content["run"]["info"]["run_id"]
            parameters = [
                {"key": f"{section}.{key}", "value": str(value)[:_MAX_PARAMETER]}
                for section, values in run.settings.to_config().items()
                for key, value in values.items()
                if value is not None
            ]
            for begin in range(0, len(parameters), _PARAMETERS_PER_REQUEST):
                self._log(params=parameters[begin : begin + _PARAMETERS_PER_REQUEST])
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"tracking_args.mlflow_uri {self._uri!r} is not an MLflow server that can be used ({_reason(error)}); "
                "start it, or correct the address"
            ) from None
        file.write_text(self._run_id + "\n")

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """Log the round's numbers."""
        now = _milliseconds()
        metrics = [
            {"key": key, "value": value, "timestamp": now, "step": line["round"]}
            for key, value in numbers(line).items()
        ]
        self._attempt(lambda: self._log(metrics=metrics))

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """The run is finished."""
        self._attempt(
            lambda: self._call("runs/update", run_id=self._run_id, status="FINISHED", end_time=_milliseconds())
        )

    def _attempt(self, action: Any) -> None:
        try:
            action()
        except (OSError, ValueError) as error:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("MLflow at %s lacks metrics of this run: %s", self._uri, _reason(error))

    def _experiment_id(self) -> str:
        query = urllib.parse.urlencode({"experiment_name": self._experiment})
        try:
            found = self._call(f"experiments/get-by-name?{query}")
            return str(found["experiment"]["experiment_id"])
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
        return str(self._call("experiments/create", name=self._experiment)["experiment_id"])

    def _log(self, **content: Any) -> None:
        self._call("runs/log-batch", run_id=self._run_id, **content)

    def _call(self, path: str, **content: Any) -> dict[str, Any]:
        """POST the content, or GET where there is none."""
        request = urllib.request.Request(
            f"{self._uri}/api/2.0/mlflow/{path}",
            data=json.dumps(content).encode() if content else None,
            headers={"Content-Type": "application/json", **_authorization()},
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
            parsed = json.loads(reply.read() or b"{}")
        return parsed if isinstance(parsed, dict) else {}


class PrometheusMetrics(Callback):
    """`metrics_port`: the last round's numbers for Prometheus, as `mrtf_<metric>`, while the run lasts."""

    def __init__(self, host: str, port: int) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise UserError(
                "tracking_args.metrics_port needs the package prometheus-client; pip install prometheus-client"
            ) from None
        self._make_gauge = prometheus_client.Gauge
        self._registry = prometheus_client.CollectorRegistry()
        self._gauges: dict[str, Any] = {}
        try:
            self._server, _ = prometheus_client.start_http_server(port, host, self._registry)
        except OSError as error:
            raise UserError(
                f"tracking_args.metrics_port: {host}:{port} cannot be opened ({error.strerror}); choose another port"
            ) from None

    def on_start(self, run: Run) -> None:
        """The number of rounds."""
        self._set("rounds", run.rounds)

    def on_round_end(self, run: Run, line: dict[str, Any]) -> None:
        """The round's numbers, and how many clients took part or were excluded."""
        for name, value in numbers(line).items():
            self._set(name, value)
        self._set("clients", len(line.get("clients") or []))
        self._set("excluded_clients", len(line.get("excluded_clients") or []))

    def on_end(self, run: Run, summary: dict[str, Any]) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def _set(self, name: str, value: float) -> None:
        if name not in self._gauges:
            self._gauges[name] = self._make_gauge(f"mrtf_{name}", f"{name} of the last round", registry=self._registry)
        self._gauges[name].set(value)


def _authorization() -> dict[str, str]:
    user, token = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_TOKEN")
    if user:
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
