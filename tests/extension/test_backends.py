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
from tests.extension.conftest import STRANGER, WANDERER, answer, everything, ran, scene

WATCHED = "tests.extension.watching:Watching"
#: By name: the algorithm, sections that only it knows, and what else differs. A rank may have several clients.
SCENES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "stranger": (STRANGER, {"stranger_args": {"pull": 0.2}}, {"callbacks": [WATCHED], "client_num_per_round": 4}),
    "mrtf-on-scaffold": ("MrTF", {}, {"base": "Scaffold", "preset": "tuned"}),
    "mrtf-on-fedopt": ("MrTF", {}, {"base": "FedOpt", "server_optimizer": "yogi", "target_smoothing": 0.5}),
    "mrtf-on-wanderer": ("MrTF", {"wanderer": {"memory_share": 0.25}}, {"base": WANDERER}),
    "feddf-on-scaffold": ("FedDF", {}, {"base": "Scaffold"}),
}
ACROSS = ("stranger", "mrtf-on-scaffold", "feddf-on-scaffold")
KILLED = ("stranger", "mrtf-on-scaffold", "mrtf-on-fedopt")
SILOS = {"client_num_in_total": 3, "client_num_per_round": 2, "classes_per_client": 5}


def config(name: str, **more: Any) -> dict[str, Any]:
    algorithm, sections, changes = SCENES[name]
    return scene(algorithm, sections, **{**changes, **more})


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a finished run of the scene in one process, made once."""
    folder, known = tmp_path_factory.mktemp("one_process"), dict[str, Path]()

    def run(name: str, **more: Any) -> Path:
        key = f"{name}-{len(more)}"
        if key not in known:
            known[key] = ran(folder, config(name, **more), key)
        return known[key]

    return run


def test_three_ranks_give_the_same_bytes(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    commands = []
    for name in SCENES:
        file = write_yaml(tmp_path / f"{name}.yaml", config(name, backend="MPI", run_dir=str(tmp_path / name)))
        commands.append(f"run --cf {file}")
    list_of_commands = tmp_path / "commands"
    list_of_commands.write_text("\n".join(commands))
    done = program(3, "several_runs.py", list_of_commands)
    assert done.returncode == 0, done.stderr
    for name in SCENES:
        assert everything(tmp_path / name) == everything(one_process(name)), name
    watched = (tmp_path / "stranger" / "watched.txt").read_text()
    assert watched == "start 0 of 3\nround 0\nround 1\nround 2\nend 3\n", "on the server only, once each"


@pytest.mark.parametrize("name", ACROSS)
def test_three_silos_give_the_same_answer(tmp_path: Path, one_process: Callable[..., Path], name: str) -> None:
    with Federation(tmp_path, silos=3) as federation:
        federation.config |= {
            section: {**values, **({} if section != "comm_args" else federation.comm)}
            for section, values in config(name, **SILOS, training_type="cross_silo", backend="GRPC").items()
        }
        federation.config["common_args"]["run_dir"] = str(federation.run_dir)
        codes = [party.ended() for party in federation.start_all()]
    assert codes == [0] * 4, "\n".join(party.told for party in federation.parties)
    assert answer(federation.run_dir) == answer(one_process(name, **SILOS))


@pytest.mark.parametrize("name", KILLED)
def test_killed_and_resumed_it_is_the_run_that_was_never_killed(
    tmp_path: Path, one_process: Callable[..., Path], name: str
) -> None:
    callbacks = SCENES[name][2].get("callbacks", [])
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
    assert everything(run_dir) == everything(one_process(name))
