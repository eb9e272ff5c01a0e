"""kill -9 at random moments: no finished round is lost, and the results equal those of an uninterrupted run.

Each test prints its counts; docs/explanation/reliability.md has the figures. MRTF_KILLS sets the number of kills.
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
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml

ROUNDS = 6


def kills(number: int) -> Iterator[tuple[int, random.Random]]:
    """The kills, each with a generator of its own, so that one can be repeated alone."""
    for index in range(int(os.environ.get("MRTF_KILLS", number))):
        yield index, random.Random(index)


def command_line(words: list[str]) -> int:
    return main(words)


def test_run_killed_in_second_round_and_resumed_gives_equal_results(tmp_path: Path) -> None:
    config = small_config(run_dir=str(tmp_path / "whole"), comm_round=3, preset="tuned", model="mlp")
    assert main(["run", "--cf", str(write_yaml(tmp_path / "whole.yaml", config))]) == 0
    run_dir = tmp_path / "run"
    config["common_args"] |= {"run_dir": str(run_dir), "callbacks": ["tests.extension.watching:Stalling"]}
    words = ["run", "--cf", str(write_yaml(tmp_path / "killed.yaml", config))]
    party = Party(command_line, words, tmp_path / "log")
    wait_until((run_dir / "stalled").exists, "the second round is being finished")
    party.kill()
    assert party.wait() == -signal.SIGKILL
    assert lines(run_dir) == 1
    assert not (run_dir / "predictions.csv").exists()
    assert main(["run", "--resume", str(run_dir), "--set", "callbacks=[]"]) == 0
    assert output_bytes(run_dir) == output_bytes(tmp_path / "whole")
    assert [line["round"] for line in read_metrics(run_dir)] == [0, 1, 2]


@pytest.mark.slow
def test_killed_and_resumed_process_gives_equal_predictions(tmp_path: Path) -> None:
    """30 kills; every third is in the last round, or while results are written."""
    whole = tmp_path / "whole"
    config = small_config(run_dir=str(whole), comm_round=ROUNDS, preset="tuned", keep_features=True)
    party = Party(
        command_line, ["run", "--cf", str(write_yaml(tmp_path / "whole.yaml", config))], tmp_path / "whole.log"
    )
    wait_until(whole.exists, "the run has started")
    began = time.monotonic()
    assert party.wait() == 0, party.output
    turn = (time.monotonic() - began) / ROUNDS
    counted = {"before the first round's end": 0, "in the other rounds": 0, "in the last round or the answer": 0}
    for index, rng in kills(30):
        folder = tmp_path / str(index)
        folder.mkdir()
        run_dir = folder / "run"
        config["common_args"]["run_dir"] = str(run_dir)
        words = ["run", "--cf", str(write_yaml(folder / "c.yaml", config))]
        after = ROUNDS - 1 if index % 3 == 2 else rng.randrange(ROUNDS - 1)
        pause = rng.uniform(0.0, 1.5 * turn)
        while True:
            party = Party(command_line, words, folder / "log")
            wait_until(
                lambda run_dir=run_dir, after=after: run_dir.exists() and lines(run_dir) >= after,
                "the moment of the kill",
            )
            time.sleep(pause)
            if party.process.is_alive():
                party.kill()
            if party.wait() == -signal.SIGKILL:
                break
            # The run had ended before the kill.
            pause /= 2
            shutil.rmtree(run_dir)
        done = lines(run_dir)
        first, other, last = counted
        counted[first if done == 0 else other if done < ROUNDS - 1 else last] += 1
        again = ["run", "--resume", str(run_dir)] if (run_dir / "config.yaml").exists() else words
        code = main(again)
        # A run that was killed after its last file was written is complete, which resuming reports.
        assert code == 0 or (code == 2 and (run_dir / "state" / "results.json").exists())
        assert [line["round"] for line in read_metrics(run_dir)] == list(range(ROUNDS))
        assert output_bytes(run_dir) == output_bytes(whole)
        assert (run_dir / "report.html").exists()
        shutil.rmtree(folder)
    print(counted)


def lines(run_dir: Path) -> int:
    file = run_dir / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.mark.slow
def test_run_continues_when_silos_are_killed_and_restarted(tmp_path: Path) -> None:
    """20 kills of a random silo of three; the run continues without it, and with it after its restart."""
    back = 0
    for index, rng in kills(20):
        folder = tmp_path / str(index)
        folder.mkdir()
        with Federation(folder, 3, comm_round=30) as federation:
            federation.comm["silo_timeout"] = 10.0
            server, *silos = federation.start_all()
            wait_until(lambda federation=federation: federation.rounds_done() >= 1, "a round")
            time.sleep(rng.uniform(0.0, 0.5))
            victim = rng.randrange(3)
            silos[victim].kill()
            silos[victim].wait()
            done = federation.rounds_done()
            silos[victim] = federation.start(victim + 1)
            assert server.wait() == 0, server.output
            assert "Traceback" not in server.output
            assert [line["round"] for line in read_metrics(federation.run_dir)] == list(range(30))
            # A silo that restarts after the end finds no server.
            back += any(victim in line["clients"] for line in read_metrics(federation.run_dir)[done + 1 :])
        shutil.rmtree(folder)
    print(f"{back} silos took part again before the run was over")


@pytest.mark.slow
def test_killed_and_resumed_server_gives_equal_predictions(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    """20 kills of the server; its silos wait, and the results equal those of one process."""
    rounds = 12
    whole = output_bytes(one_process(2, comm_round=rounds))
    counted = {"in the rounds": 0, "after the last round": 0}
    for index, rng in kills(20):
        folder = tmp_path / str(index)
        folder.mkdir()
        with Federation(folder, 2, comm_round=rounds) as federation:
            server, *silos = federation.start_all()
            after = rng.randrange(rounds + 1)
            wait_until(
                lambda federation=federation, after=after: (
                    (federation.run_dir / "config.yaml").exists() and federation.rounds_done() >= after
                ),
                "the moment of the kill",
            )
            time.sleep(rng.uniform(0.0, 0.3))
            if server.process.is_alive():
                server.kill(signal.SIGKILL)
            if server.wait() != 0:
                counted["in the rounds" if federation.rounds_done() < rounds else "after the last round"] += 1
                if not (federation.run_dir / "state" / "results.json").exists():
                    again = federation.resume()
                    assert [party.wait() for party in (again, *silos)] == [0, 0, 0], again.output
            assert output_bytes(federation.run_dir) == whole
            assert [line["round"] for line in read_metrics(federation.run_dir)] == list(range(rounds))
        shutil.rmtree(folder)
    print(counted)


@pytest.mark.slow
def test_server_resumed_after_the_last_round_tells_its_waiting_silos(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=2) as federation:
        assert [party.wait() for party in federation.start_all()] == [0, 0, 0]
        # As if the server had been killed before it wrote its results.
        results = federation.run_dir / "state" / "results.json"
        results.unlink()
        (federation.run_dir / "predictions.csv").unlink()
        silos = [federation.start(rank) for rank in (1, 2)]
        for silo in silos:
            wait_until(lambda silo=silo: "no connection" in silo.output, "the silo waits for the server")
            silo.kill(signal.SIGSTOP)
        server = federation.resume()
        wait_until(results.exists, "the results are written")
        for silo in silos:
            silo.kill(signal.SIGCONT)
        assert [party.wait() for party in (server, *silos)] == [0, 0, 0], server.output
