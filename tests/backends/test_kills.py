"""kill -9 at random moments, again and again: nothing is lost, and the answer is that of a run never stopped.

Each prints what it has counted; docs/reliability.md has the figures. MRTF_KILLS changes how many there are.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.backends.cross_silo.federation import Federation, Party, wait_until
from tests.conftest import answer, metrics, small_config, write_yaml

pytestmark = pytest.mark.slow

ROUNDS = 6


def kills(number: int) -> Iterator[tuple[int, random.Random]]:
    """As many as asked for, each with its own chance, so that one can be repeated alone."""
    for index in range(int(os.environ.get("MRTF_KILLS", number))):
        yield index, random.Random(index)


def command_line(words: list[str]) -> int:
    return main(words)


def test_one_process_killed_and_resumed(tmp_path: Path) -> None:
    """30 kills; each third falls into the last round, the answer or the report."""
    whole = tmp_path / "whole"
    config = small_config(run_dir=str(whole), comm_round=ROUNDS, preset="tuned", keep_features=True)
    party = Party(
        command_line, ["run", "--cf", str(write_yaml(tmp_path / "whole.yaml", config))], tmp_path / "whole.log"
    )
    wait_until((whole / "config.yaml").exists, "the run has begun")
    began = time.monotonic()
    assert party.ended() == 0, party.told
    seconds = time.monotonic() - began
    counted = {"before the first round": 0, "in the rounds": 0, "in the answer": 0, "too late": 0}
    for index, chance in kills(30):
        folder = tmp_path / str(index)
        folder.mkdir()
        run_dir = folder / "run"
        config["common_args"]["run_dir"] = str(run_dir)
        words = ["run", "--cf", str(write_yaml(folder / "c.yaml", config))]
        party = Party(command_line, words, folder / "log")
        if index % 3 == 2:
            wait_until(lambda run_dir=run_dir: lines(run_dir) >= ROUNDS - 1, "the last round")
            time.sleep(chance.uniform(0.0, 0.25 * seconds))
        else:
            wait_until((run_dir / "config.yaml").exists, "the run has begun")
            time.sleep(chance.uniform(0.0, 0.9 * seconds))
        killed = party.process.is_alive()
        if killed:
            party.kill()
        party.ended()
        done = lines(run_dir)
        place = "before the first round" if done == 0 else "in the rounds" if done < ROUNDS else "in the answer"
        counted[place if killed else "too late"] += 1
        if killed:
            again = ["run", "--resume", str(run_dir)] if (run_dir / "config.yaml").exists() else words
            code = main(again)
            # Killed after its last word, it has nothing left to do, and says so.
            assert code == 0 or (code == 2 and (run_dir / "state" / "answered.json").exists())
        assert [line["round"] for line in metrics(run_dir)] == list(range(ROUNDS))
        assert answer(run_dir) == answer(whole)
        assert (run_dir / "report.html").exists()
        shutil.rmtree(folder)
    print(counted)


def lines(run_dir: Path) -> int:
    file = run_dir / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_silos_killed_and_started_again(tmp_path: Path) -> None:
    """20 kills of a random silo of three; the run goes on without it, and with it when it is back."""
    back = 0
    for index, chance in kills(20):
        folder = tmp_path / str(index)
        folder.mkdir()
        with Federation(folder, 3, comm_round=30) as federation:
            federation.comm["silo_timeout"] = 10.0
            server, *silos = federation.start_all()
            wait_until(lambda federation=federation: federation.rounds_done() >= 1, "a round")
            time.sleep(chance.uniform(0.0, 0.5))
            victim = chance.randrange(3)
            silos[victim].kill()
            silos[victim].ended()
            done = federation.rounds_done()
            silos[victim] = federation.start(victim + 1)
            assert server.ended() == 0, server.told
            assert "Traceback" not in server.told
            assert [line["round"] for line in metrics(federation.run_dir)] == list(range(30))
            # One that comes when all is over finds no server, and would wait for it.
            back += any(victim in line["clients"] for line in metrics(federation.run_dir)[done + 1 :])
        shutil.rmtree(folder)
    print(f"{back} silos took part again before the run was over")


def test_servers_killed_and_resumed(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    """20 kills of the server; its silos wait, and the answer is that of one process."""
    whole = answer(one_process(2, comm_round=12))
    for index, chance in kills(20):
        folder = tmp_path / str(index)
        folder.mkdir()
        with Federation(folder, 2, comm_round=12) as federation:
            server, *silos = federation.start_all()
            wait_until(lambda federation=federation: (federation.run_dir / "config.yaml").exists(), "the run's folder")
            time.sleep(chance.uniform(0.0, 3.0))
            if server.process.is_alive():
                server.kill(signal.SIGKILL)
                server.ended()
                if not (federation.run_dir / "state" / "answered.json").exists():
                    again = federation.resume()
                    assert [party.ended() for party in (again, *silos)] == [0, 0, 0], again.told
            assert answer(federation.run_dir) == whole
            assert [line["round"] for line in metrics(federation.run_dir)] == list(range(12))
        shutil.rmtree(folder)
