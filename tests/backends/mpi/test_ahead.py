"""With `feedback: never` the next clients train while the server refines; what comes of a run stays the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from mrtf_fedml.cli import main
from tests.conftest import metrics

from .conftest import END_SECONDS, configuration, is_gone, rank_processes, running, wait_for
from .eager import STALL
from .test_parity import answer, losses, several

CLIENTS = 5
SMALL: dict[str, Any] = {
    "model": "mlp",
    "hidden_size": 16,
    "comm_round": 4,
    "client_num_per_round": CLIENTS,
    "refine_steps": 3,
}


def eager(name: str, **changes: Any) -> dict[str, Any]:
    return {**SMALL, "federated_optimizer": f"tests.backends.mpi.eager:{name}", **changes}


#: Where the clients go ahead: `Patient` would wait for ever if they did not.
AHEAD = {
    "never": eager("Patient", feedback="never"),
    "released": eager("Patient", preset="released"),
    "scaffold": eager("Patient", base="Scaffold"),
    "teachers": eager("Patient", feedback="never"),
    "unkept": eager("Unkept", feedback="never"),
    "stopped": eager("Patient", feedback="never", callbacks=["tests.backends.mpi.eager:EnoughAfterTwo"]),
}
#: Where what they get, or what they are charged for, depends on the round before.
WAITING = {
    "always": eager("Noted", feedback="always"),
    "judged": eager("Noted", feedback="never", client_judgement=True, answer="judged"),
    "private": eager("Noted", feedback="never", clip=1.0, sigma=0.01),
    "ranks": eager("Noted", feedback="never", refine_on="ranks"),
}


def seen_ahead(run_dir: Path) -> list[int]:
    """How many clients of each round but the first were trained when the round before was finished."""
    files = sorted((run_dir / "events").glob("ahead-of-*"))
    return [int(file.read_text()) for file in files]


def test_clients_go_ahead_and_the_bytes_stay(tmp_path: Path) -> None:
    """Three ranks and one process, after a kill too, while clients were ahead."""
    alone, ranks = tmp_path / "alone", tmp_path / "ranks"
    alone.mkdir()
    ranks.mkdir()
    for name, scene in {**AHEAD, **{name: WAITING[name] for name in ("judged", "private")}}.items():
        file = configuration(alone, f"{name}.yaml", backend="sp", run_dir=str(alone / name), **scene)
        assert main(["run", "--cf", str(file)]) == 0
    killed = kill_while_ahead(ranks / "killed")
    scenes = {**AHEAD, **WAITING}
    scenes["teachers"] = {**AHEAD["teachers"], "refine_on": "teachers"}
    files = [configuration(ranks, f"{name}.yaml", run_dir=str(ranks / name), **scene) for name, scene in scenes.items()]
    several(tmp_path, 3, *(f"run --cf {file}" for file in files), f"run --resume {killed}")
    for name in (*AHEAD, "judged", "private"):
        assert answer(ranks / name) == answer(alone / name), name
        assert losses(ranks / name) == losses(alone / name), name
    assert answer(killed) == answer(alone / "never")
    assert losses(killed) == losses(alone / "never")
    assert len(metrics(ranks / "stopped")) == 2, "what was trained ahead of the stop is not used"
    for name in set(AHEAD) - {"stopped"}:
        assert seen_ahead(ranks / name) == [CLIENTS] * 3 + [0], name
    for name in WAITING:
        assert seen_ahead(ranks / name) == [0] * 4, name


def kill_while_ahead(run_dir: Path) -> Path:
    """The folder of a run whose server was killed in its second round, when the third one's clients were trained."""
    file = configuration(run_dir.parent, "killed.yaml", run_dir=str(run_dir), **AHEAD["never"])
    stall = run_dir.with_suffix(STALL)
    stall.touch()
    with running(3, file) as process:
        wait_for(lambda: (run_dir / "events" / "stalled").exists() or process.poll() is not None)
        processes = rank_processes(process.pid)
        assert sorted(processes) == [0, 1, 2], process.poll()
        os.kill(processes[0], signal.SIGKILL)
        process.communicate(timeout=END_SECONDS)
        wait_for(lambda: all(is_gone(each) for each in processes.values()), END_SECONDS)
    stall.unlink()
    assert len(metrics(run_dir)) == 1
    for trained in (run_dir / "events").glob("trained-*"):
        trained.unlink()
    return run_dir
