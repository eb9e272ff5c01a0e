"""Silos that die, hang, come late or come back; servers that die or come back: nobody waits for ever."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.cross_silo.federation import Federation, wait_until
from tests.backends.cross_silo.test_parity import answer
from tests.privacy.test_budget import gaussian_epsilon

#: Long enough that a test can act between two rounds, whose number a test can change when it has seen enough.
MANY = 12


def metrics(federation: Federation) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (federation.run_dir / "metrics.jsonl").read_text().splitlines()]


def test_a_silo_that_starts_first_waits_for_its_server(tmp_path: Path, one_process: Callable[..., Path]) -> None:
    with Federation(tmp_path, 2, comm_round=1) as federation:
        silos = [federation.start(1), federation.start(2)]
        wait_until(lambda: all("waits for the server" in silo.told for silo in silos), "the silos say that they wait")
        server = federation.start(0)
        assert [party.ended() for party in (server, *silos)] == [0, 0, 0]
        assert answer(federation.run_dir) == answer(one_process(2, comm_round=1))


def test_a_silo_that_finds_no_server_says_so(tmp_path: Path) -> None:
    with Federation(tmp_path, 2) as federation:
        federation.comm["start_timeout"] = 4.0
        silo = federation.start(1)
        assert silo.ended() == 1
        assert "silo 1 found no server in 4 s (comm_args.start_timeout, backend GRPC)" in silo.told
        assert "Traceback" not in silo.told


def test_a_killed_silo_is_left_out_and_taken_back_when_it_is_started_again(tmp_path: Path) -> None:
    with Federation(tmp_path, 3, comm_round=MANY, refine_steps=200) as federation:
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill()
        wait_until(lambda: any(2 not in line["clients"] for line in metrics(federation)), "a round without it")
        again = federation.start(3)
        assert [party.ended() for party in (server, first, second, again)] == [0, 0, 0, 0], server.told
        taken = [2 in line["clients"] and "2" not in line["left_out"] for line in metrics(federation)]
        assert taken[0]
        assert not all(taken)
        assert len(taken) == MANY
        assert taken[-1], "it was taken in again"


def test_a_silo_that_hangs_mid_round_is_timed_out_and_its_late_answer_brings_it_back(tmp_path: Path) -> None:
    with Federation(tmp_path, 3, comm_round=MANY, refine_steps=200) as federation:
        federation.comm["silo_timeout"] = 8.0
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill(signal.SIGSTOP)
        wait_until(lambda: any("2" in line["left_out"] for line in metrics(federation)), "a round that left it out")
        assert "silos [3] gave no answer" in server.told
        reasons = [line["left_out"]["2"] for line in metrics(federation) if "2" in line["left_out"]]
        assert reasons[0] == "it gave no answer within 8 s (comm_args.silo_timeout)"
        third.kill(signal.SIGCONT)
        done = federation.rounds_done()
        assert server.ended() == 0, server.told
        later = metrics(federation)[done:]
        # The silo itself may have taken the silence for the server's death, and have ended.
        assert third.ended() in (0, 1)
        assert third.process.exitcode == 1 or any(2 in line["clients"] for line in later) or not later
        assert [first.ended(), second.ended()] == [0, 0]


def test_too_few_silos_stop_the_run_and_everybody_is_told(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=500) as federation:
        federation.comm |= {"min_silos": 2, "silo_timeout": 10.0}
        server, first, second = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        second.kill()
        assert server.ended() == 1
        assert "comm_args.min_silos" in server.told
        assert f"mrtf run --resume {federation.run_dir}" in server.told
        assert first.ended() == 1
        assert "the server has ended the run: " in first.told
        assert "Traceback" not in server.told + first.told
        assert json.loads((federation.run_dir / "summary.json").read_text())["interrupted"]


def test_when_the_server_is_killed_every_silo_ends_in_time_and_says_why(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=500) as federation:
        federation.comm["silo_timeout"] = 10.0
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        server.kill()
        killed = time.monotonic()
        for rank, silo in enumerate(silos, start=1):
            assert silo.ended() == 1
            assert f"silo {rank} has heard nothing of the server for 10 s (comm_args.silo_timeout)" in silo.told
            assert "Traceback" not in silo.told
        # A loaded machine may take its time to end a process; the silence itself was ten seconds.
        assert time.monotonic() - killed < 10.0 + 30.0


def test_an_interrupted_server_saves_what_it_has_and_tells_its_silos(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=500) as federation:
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        server.kill(signal.SIGINT)
        assert server.ended() == 130, server.told
        assert [silo.ended() for silo in silos] == [1, 1]
        assert all("the server has ended the run: it was interrupted" in silo.told for silo in silos)
        assert (federation.run_dir / "predictions.csv").exists()


def test_a_silo_that_is_stopped_by_its_owner_is_not_waited_for(tmp_path: Path) -> None:
    with Federation(tmp_path, 3, comm_round=MANY, refine_steps=200) as federation:
        federation.comm["silo_timeout"] = 1000.0
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill(signal.SIGINT)
        assert third.ended() == 130
        assert [party.ended() for party in (server, first, second)] == [0, 0, 0], server.told


def test_a_server_that_resumes_takes_its_waiting_silos_in_again(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    with Federation(tmp_path, 2, comm_round=MANY) as federation:
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 2, "two rounds")
        server.kill()
        server.ended()
        assert federation.rounds_done() < MANY, "the run was over before the server was killed"
        again = federation.resume()
        assert [party.ended() for party in (again, *silos)] == [0, 0, 0], again.told
        assert answer(federation.run_dir) == answer(one_process(2, comm_round=MANY))


def test_a_round_that_the_server_repeats_after_its_death_is_paid_for_twice(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=MANY, clip=0.5, sigma=1.0) as federation:
        server, *silos = federation.start_all()
        charged = federation.run_dir / "state" / "privacy.jsonl"

        def in_a_round() -> bool:
            # Held still, it is in a round or between two.
            server.kill(signal.SIGSTOP)
            done = federation.rounds_done()
            if charged.exists() and charged.read_text().count("\n") == done + 1 > 1:
                return True
            server.kill(signal.SIGCONT)
            return False

        wait_until(in_a_round, "a round is handed out and not finished")
        server.kill()
        server.ended()
        again = federation.resume()
        assert [party.ended() for party in (again, *silos)] == [0, 0, 0], again.told
        assert len(metrics(federation)) == MANY
        spent = json.loads((federation.run_dir / "summary.json").read_text())["epsilon_server"]
        assert spent == pytest.approx(gaussian_epsilon(2.0, MANY + 1, 1e-5), rel=1e-6)


def own_file(path: Path, names: list[str]) -> Path:
    """A silo's own digits, with the classes numbered as `names` says."""
    images, labels = np.zeros((20, 1, 8, 8), dtype=np.float32), np.arange(20) % 10
    np.savez(path, x_train=images, y_train=labels, class_names=np.array(names))
    return path


def test_a_silo_that_agrees_to_something_else_is_refused_with_the_reason(tmp_path: Path) -> None:
    turned = own_file(tmp_path / "turned.npz", [str(digit) for digit in reversed(range(10))])
    others: list[tuple[str, dict[str, Any], str]] = [
        ("model_args", {"model": "mlp"}, "the model of silo 1 differs from the server's"),
        ("data_args", {"own_data_file": str(turned)}, "differently from the server: class 0 is '9' there and '0' here"),
        ("dp_args", {"clip": 1.0, "sigma": 0.5}, "has other dp_args (clip 1.0, sigma 0.5) than the server (none)"),
    ]
    with Federation(tmp_path, 1, comm_round=1) as federation:
        server = federation.start(0)
        for section, change, told in others:
            other = deepcopy(federation.config)
            other.setdefault(section, {}).update(change)
            wrong = federation.start(1, config=other)
            assert wrong.ended() == 1
            assert told in wrong.told
        right = federation.start(1)
        assert [server.ended(), right.ended()] == [0, 0]
