"""The same bytes in one process, on ranks and across silos, and after a kill, for algorithms of a user's own too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.cli import main
from tests.backends.cross_silo.federation import Federation, Party, wait_until
from tests.backends.mpi.conftest import program
from tests.conftest import write_yaml
from tests.extension.conftest import STRANGER, WANDERER, comparable_outputs, extension_config, output_bytes, run_config

WATCHED = "tests.extension.watching:Watching"
#: Components of a user's own, each with a memory.
COMPONENTS: dict[str, Any] = {
    "teacher_weighting": "tests.extension.components:Margin",
    "target_transforms": ["tests.extension.components:Momentum"],
    "broadcast": "tests.extension.components:Alternating",
    "predict_with": "tests.extension.components:Alternating",
}
#: By name: the algorithm, its own sections, and other changes. A rank may have several clients.
SETUPS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "stranger": (STRANGER, {"stranger_args": {"pull": 0.2}}, {"callbacks": [WATCHED], "client_num_per_round": 4}),
    "mrtf-on-scaffold": ("MrTF", {}, {"base": "Scaffold", "preset": "tuned"}),
    "mrtf-on-fedopt": ("MrTF", {}, {"base": "FedOpt", "server_optimizer": "yogi", "target_smoothing": 0.5}),
    "mrtf-on-fedridge": ("MrTF", {}, {"base": "FedRidge", "preset": "tuned", "model": "mlp"}),
    "mrtf-on-wanderer": ("MrTF", {"wanderer": {"memory_share": 0.25}}, {"base": WANDERER}),
    "mrtf-components": ("MrTF", {}, COMPONENTS),
    "feddf-on-scaffold": ("FedDF", {}, {"base": "Scaffold"}),
}
ACROSS = ("stranger", "mrtf-on-scaffold", "mrtf-on-fedridge", "feddf-on-scaffold")
KILLED = ("stranger", "mrtf-on-scaffold", "mrtf-on-fedridge", "mrtf-on-fedopt", "mrtf-components")
SILOS = {"client_num_in_total": 3, "client_num_per_round": 2, "classes_per_client": 5}


def config(name: str, **more: Any) -> dict[str, Any]:
    algorithm, sections, changes = SETUPS[name]
    return extension_config(algorithm, sections, **{**changes, **more})


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run directory of the setup in one process, created once."""
    folder, known = tmp_path_factory.mktemp("one_process"), dict[str, Path]()

    def run(name: str, **more: Any) -> Path:
        key = f"{name}-{len(more)}"
        if key not in known:
            known[key] = run_config(folder, config(name, **more), key)
        return known[key]

    return run


@pytest.mark.slow
def test_three_mpi_ranks_give_equal_bytes(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    commands = []
    for name in SETUPS:
        file = write_yaml(tmp_path / f"{name}.yaml", config(name, backend="MPI", run_dir=str(tmp_path / name)))
        commands.append(f"run --cf {file}")
    list_of_commands = tmp_path / "commands"
    list_of_commands.write_text("\n".join(commands))
    done = program(3, "several_runs.py", list_of_commands)
    assert done.returncode == 0, done.stderr
    for name in SETUPS:
        assert comparable_outputs(tmp_path / name) == comparable_outputs(one_process(name)), name
    watched = (tmp_path / "stranger" / "watched.txt").read_text()
    assert watched == "start 0 of 3\nround 0\nround 1\nround 2\nend 3\n", "on the server only, once each"


@pytest.mark.slow
@pytest.mark.parametrize("name", ACROSS)
def test_three_silos_give_equal_outputs(tmp_path: Path, one_process: Callable[..., Path], name: str) -> None:
    with Federation(tmp_path, silos=3) as federation:
        federation.config |= {
            section: {**values, **({} if section != "comm_args" else federation.comm)}
            for section, values in config(name, **SILOS, training_type="cross_silo", backend="GRPC").items()
        }
        federation.config["common_args"]["run_dir"] = str(federation.run_dir)
        codes = [party.wait() for party in federation.start_all()]
    assert codes == [0] * 4, "\n".join(party.output for party in federation.parties)
    assert output_bytes(federation.run_dir) == output_bytes(one_process(name, **SILOS))


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_killed_and_resumed_run_gives_equal_outputs(
    tmp_path: Path, one_process: Callable[..., Path], name: str
) -> None:
    callbacks = SETUPS[name][2].get("callbacks", [])
    stalling = [*callbacks, "tests.extension.watching:Stalling"]
    run_dir = tmp_path / "run"
    file = write_yaml(tmp_path / "config.yaml", config(name, run_dir=str(run_dir), callbacks=stalling))
    party = Party(main, ["run", "--cf", str(file)], tmp_path / "log")
    wait_until((run_dir / "stalled").exists, "the second round is being finished")
    assert (run_dir / "state" / "server.safetensors").exists()
    party.kill()
    party.process.join(10)
    assert not (run_dir / "predictions.csv").exists()
    assert main(["run", "--resume", str(run_dir), "--set", f"callbacks={callbacks}"]) == 0
    assert comparable_outputs(run_dir) == comparable_outputs(one_process(name))
