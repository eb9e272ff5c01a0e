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
    wait_until(whole.exists, "the run has begun")
    began = time.monotonic()
    assert party.ended() == 0, party.told
    turn = (time.monotonic() - began) / ROUNDS
    counted = {"before the first round's end": 0, "in the other rounds": 0, "in the last round or the answer": 0}
    for index, chance in kills(30):
        folder = tmp_path / str(index)
        folder.mkdir()
        run_dir = folder / "run"
        config["common_args"]["run_dir"] = str(run_dir)
        words = ["run", "--cf", str(write_yaml(folder / "c.yaml", config))]
        after = ROUNDS - 1 if index % 3 == 2 else chance.randrange(ROUNDS - 1)
        pause = chance.uniform(0.0, 1.5 * turn)
        while True:
            party = Party(command_line, words, folder / "log")
            wait_until(lambda run_dir=run_dir, after=after: run_dir.exists() and lines(run_dir) >= after, "its moment")
            time.sleep(pause)
            if party.process.is_alive():
                party.kill()
            if party.ended() == -signal.SIGKILL:
                break
            # The machine was quicker than when it was measured: too late for a kill.
            pause /= 2
            shutil.rmtree(run_dir)
        done = lines(run_dir)
        first, other, last = counted
        counted[first if done == 0 else other if done < ROUNDS - 1 else last] += 1
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
    rounds = 12
    whole = answer(one_process(2, comm_round=rounds))
    counted = {"in the rounds": 0, "after the last round": 0}
    for index, chance in kills(20):
        folder = tmp_path / str(index)
        folder.mkdir()
        with Federation(folder, 2, comm_round=rounds) as federation:
            server, *silos = federation.start_all()
            after = chance.randrange(rounds + 1)
            wait_until(
                lambda federation=federation, after=after: (
                    (federation.run_dir / "config.yaml").exists() and federation.rounds_done() >= after
                ),
                "its moment",
            )
            time.sleep(chance.uniform(0.0, 0.3))
            if server.process.is_alive():
                server.kill(signal.SIGKILL)
            if server.ended() != 0:
                counted["in the rounds" if federation.rounds_done() < rounds else "after the last round"] += 1
                if not (federation.run_dir / "state" / "answered.json").exists():
                    again = federation.resume()
                    assert [party.ended() for party in (again, *silos)] == [0, 0, 0], again.told
            assert answer(federation.run_dir) == whole
            assert [line["round"] for line in metrics(federation.run_dir)] == list(range(rounds))
        shutil.rmtree(folder)
    print(counted)
