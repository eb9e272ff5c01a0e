"""Small runs with any algorithm; the registry of algorithms is restored after each test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.algorithms import registry
from mrtf_fedml.cli import main
from mrtf_fedml.config import schema
from tests.conftest import small_config, write_yaml

STRANGER = "tests.extension.stranger:Stranger"
WANDERER = "tests.extension.stranger:Wanderer"
NET = "tests.extension.stranger:Net"
#: Metrics that differ between two equal runs.
TIMES = ("client_seconds", "server_seconds")


@pytest.fixture(autouse=True)
def _restore_registry() -> Iterator[None]:
    """Remove what a test registers, as in a new process."""
    declared = {name: list(known) for name, known in schema._declared.items()}
    saved = ((registry._registered, dict(registry._registered)), (schema._by_algorithm, dict(schema._by_algorithm)))
    yield
    for now, before in (*saved, (schema._declared, declared)):
        now.clear()  # type: ignore[attr-defined]
        now.update(before)  # type: ignore[arg-type]


def extension_config(
    algorithm: str = STRANGER, sections: dict[str, dict[str, Any]] | None = None, **changes: Any
) -> Any:
    """The configuration of a run of a second; `sections` are those of a user's algorithm."""
    given = {"model": NET, "comm_round": 3, "federated_optimizer": algorithm, **changes}
    return {**small_config(**given), **(sections or {})}


def run_config(folder: Path, config: dict[str, Any], name: str = "run") -> Path:
    """Run `mrtf run` in this process; returns the run directory."""
    config["common_args"]["run_dir"] = str(folder / name)
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return folder / name


def output_bytes(run_dir: Path) -> tuple[bytes, ...]:
    """The bytes of predictions, model and probabilities."""
    return tuple(
        (run_dir / name).read_bytes() for name in ("predictions.csv", "model.safetensors", "probabilities.npy")
    )


def comparable_outputs(run_dir: Path) -> tuple[Any, ...]:
    """Everything that is equal in two equal runs."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    records = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    return (*output_bytes(run_dir), (run_dir / "state" / "server.safetensors").read_bytes(), records)


@pytest.fixture
def run_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that gives the one sentence with which `mrtf run` rejects a configuration."""

    def run(config: dict[str, Any], *options: str) -> str:
        config["common_args"]["run_dir"] = str(tmp_path / "rejected")
        assert main(["run", "--cf", str(write_yaml(tmp_path / "rejected.yaml", config)), *options]) == 2
        output = capsys.readouterr().err
        assert "Traceback" not in output
        (sentence,) = [line for line in output.splitlines() if line.startswith("mrtf: ")]
        return sentence

    return run
