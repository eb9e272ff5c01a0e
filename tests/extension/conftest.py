"""What these tests share: small runs with any algorithm, and the list of algorithms as it was, afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.algorithms import registry
from mrtf_fedml.cli import main
from mrtf_fedml.settings import sections
from tests.conftest import small_config, write_yaml

STRANGER = "tests.extension.stranger:Stranger"
WANDERER = "tests.extension.stranger:Wanderer"
NET = "tests.extension.stranger:Net"
#: What differs from run to run though the run is the same.
TIMES = ("seconds_local", "seconds_refine")


@pytest.fixture(autouse=True)
def _registered_as_before() -> Iterator[None]:
    """What a test registers is unknown to the next one, as it is in a user's next process."""
    registered, declared = dict(registry._registered), {name: list(known) for name, known in sections._declared.items()}
    yield
    for now, before in ((registry._registered, registered), (sections._declared, declared)):
        now.clear()  # type: ignore[attr-defined]
        now.update(before)  # type: ignore[arg-type]


def scene(algorithm: str = STRANGER, sections: dict[str, dict[str, Any]] | None = None, **changes: Any) -> Any:
    """A run of a second; `sections` are those that only a user's algorithm knows."""
    given = {"model": NET, "comm_round": 3, "federated_optimizer": algorithm, **changes}
    return {**small_config(**given), **(sections or {})}


def ran(folder: Path, config: dict[str, Any], name: str = "run") -> Path:
    """`mrtf run` in this process: the run's folder."""
    config["common_args"]["run_dir"] = str(folder / name)
    assert main(["run", "--cf", str(write_yaml(folder / f"{name}.yaml", config))]) == 0
    return folder / name


def answer(run_dir: Path) -> tuple[bytes, ...]:
    """Predictions, model and probabilities."""
    return tuple(
        (run_dir / name).read_bytes() for name in ("predictions.csv", "model.safetensors", "probabilities.npy")
    )


def everything(run_dir: Path) -> tuple[Any, ...]:
    """All that two equal runs have in common."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    told = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    return (*answer(run_dir), (run_dir / "state" / "server.safetensors").read_bytes(), told)


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one sentence with which `mrtf run` refuses a configuration."""

    def refused(config: dict[str, Any], *words: str) -> str:
        config["common_args"]["run_dir"] = str(tmp_path / "refused")
        assert main(["run", "--cf", str(write_yaml(tmp_path / "refused.yaml", config)), *words]) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        (sentence,) = [line for line in said.splitlines() if line.startswith("mrtf: ")]
        return sentence

    return refused
