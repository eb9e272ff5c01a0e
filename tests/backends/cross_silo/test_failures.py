"""Silos and servers that die, hang, start late or restart: no party waits forever."""

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

from mrtf_fedml.cli import main
from mrtf_fedml.fedml_bridge.backends.cross_silo.transports.revocation import certificate_digest
from tests.backends.cross_silo.certificates import Authority
from tests.backends.cross_silo.federation import Federation, wait_until
from tests.conftest import output_bytes
from tests.fedml_bridge.backends.cross_silo.transports.test_grpc import both_forms
from tests.privacy.test_budget import gaussian_epsilon

#: Long enough that a test can act between two rounds, whose number a test can change when it has seen enough.
MANY = 12
#: More rounds than a test waits for: it interrupts the server.
UNTIL_INTERRUPTED = 100_000


def metrics(federation: Federation) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (federation.run_dir / "metrics.jsonl").read_text().splitlines()]


def assert_logs_agree(federation: Federation) -> None:
    """The audit logs of the server and of each silo are intact and agree."""
    for rank in range(1, federation.silos + 1):
        assert main(["audit", "verify", str(federation.run_dir), f"{federation.run_dir}-silo{rank}"]) == 0


@pytest.mark.slow
def test_silo_started_before_server_waits_and_predictions_are_equal(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    with Federation(tmp_path, 2, comm_round=1) as federation:
        silos = [federation.start(1), federation.start(2)]
        wait_until(lambda: all("waits for the server" in silo.output for silo in silos), "a warning of each silo")
        server = federation.start(0)
        assert [party.wait() for party in (server, *silos)] == [0, 0, 0]
        assert output_bytes(federation.run_dir) == output_bytes(one_process(2, comm_round=1))


@pytest.mark.slow
def test_silo_without_server_ends_after_start_timeout(tmp_path: Path) -> None:
    with Federation(tmp_path, 2) as federation:
        federation.comm["start_timeout"] = 4.0
        silo = federation.start(1)
        assert silo.wait() == 1
        assert "silo 1 found no server in 4 s (comm_args.start_timeout, backend GRPC)" in silo.output
        assert "Traceback" not in silo.output


@pytest.mark.parametrize(
    ("connection", "uses_tls"),
    [
        ("outbound", True),
        pytest.param("outbound", False, marks=pytest.mark.slow),
        pytest.param("two_way", True, marks=pytest.mark.slow),
        pytest.param("two_way", False, marks=pytest.mark.slow),
    ],
)
def test_killed_silo_is_excluded_and_rejoins_after_restart(tmp_path: Path, connection: str, uses_tls: bool) -> None:
    def participation() -> list[bool]:
        return [2 in line["clients"] and "2" not in line["excluded_clients"] for line in metrics(federation)]

    with Federation(tmp_path, 3, comm_round=UNTIL_INTERRUPTED, connection=connection) as federation:
        # Where the server sees that the connection is broken, it does not wait for silo_timeout.
        federation.comm |= {"silo_timeout": 20.0} if connection == "two_way" else {"reconnect_timeout": 2.0}
        if uses_tls:
            federation.use_certificates(Authority(tmp_path / "certificates"))
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill()
        wait_until(lambda: not all(participation()), "a round without the killed silo")
        again = federation.start(3)
        absent = len(participation())
        wait_until(lambda: any(participation()[absent:]), "a round with the restarted silo")
        server.kill(signal.SIGINT)
        assert server.wait() == 130, server.output
        assert [silo.wait() for silo in (first, second, again)] == [1, 1, 1]
        assert participation()[0]
        assert connection == "two_way" or "silo 3 has disconnected; the server waits up to 2 s for it" in server.output
        assert_logs_agree(federation)


@pytest.mark.slow
@both_forms
def test_revoked_silo_ends_at_once_and_the_run_continues(tmp_path: Path, connection: str) -> None:
    authority, revoked = Authority(tmp_path / "certificates"), tmp_path / "revoked.txt"
    revoked.touch()
    with Federation(tmp_path, 2, comm_round=UNTIL_INTERRUPTED, connection=connection) as federation:
        federation.use_certificates(authority)
        federation.certificates[0]["tls_revoked"] = str(revoked)
        server, first, second = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        certificate = Path(federation.certificates[2]["tls_certificate"])
        revoked.write_text(f"{certificate_digest(certificate.read_bytes())} silo2\n")
        assert second.wait() == 1, second.output
        done = federation.rounds_done()
        again = federation.start(2)
        assert again.wait() == 1, again.output
        for silo in (second, again):
            assert "its certificate is revoked" in silo.output
            assert "Traceback" not in silo.output
        wait_until(lambda: federation.rounds_done() >= done + 2, "further rounds")
        server.kill(signal.SIGINT)
        assert server.wait() == 130, server.output
        assert first.wait() == 1
        assert all(line["clients"] == [0] for line in metrics(federation)[done + 1 :])
        assert "silo 2 is disconnected: its certificate is revoked" in server.output


@pytest.mark.slow
def test_silo_that_hangs_is_excluded_and_its_late_update_reconnects_it(tmp_path: Path) -> None:
    with Federation(tmp_path, 3, comm_round=MANY, refine_steps=200) as federation:
        federation.comm["silo_timeout"] = 8.0
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill(signal.SIGSTOP)
        wait_until(
            lambda: any("2" in line["excluded_clients"] for line in metrics(federation)), "a round that excludes it"
        )
        assert "no update of silo 3" in server.output
        reasons = [line["excluded_clients"]["2"] for line in metrics(federation) if "2" in line["excluded_clients"]]
        assert reasons[0] == "it did not reply within 8 s (comm_args.silo_timeout)"
        third.kill(signal.SIGCONT)
        done = federation.rounds_done()
        assert server.wait() == 0, server.output
        later = metrics(federation)[done:]
        # The silo may have ended itself, since it received nothing from the server while it was stopped.
        assert third.wait() in (0, 1)
        assert third.process.exitcode == 1 or any(2 in line["clients"] for line in later) or not later
        assert [first.wait(), second.wait()] == [0, 0]


@pytest.mark.slow
def test_too_few_silos_stop_the_run_and_all_silos(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=500, min_clients=2) as federation:
        federation.comm["silo_timeout"] = 10.0
        server, first, second = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        second.kill()
        assert server.wait() == 1
        assert "train_args.min_clients" in server.output
        assert f"mrtf run --resume {federation.run_dir}" in server.output
        assert first.wait() == 1
        assert "the server has ended the run: " in first.output
        assert "Traceback" not in server.output + first.output
        assert json.loads((federation.run_dir / "summary.json").read_text())["interrupted"]


@pytest.mark.slow
def test_killed_server_ends_every_silo_after_silo_timeout(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=500) as federation:
        federation.comm["silo_timeout"] = 10.0
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        server.kill()
        killed = time.monotonic()
        for rank, silo in enumerate(silos, start=1):
            assert silo.wait() == 1
            assert f"silo {rank} has received nothing from the server for 10 s (comm_args.silo_timeout)" in silo.output
            assert "Traceback" not in silo.output
        # A loaded machine may take its time to end a process; the silence itself was ten seconds.
        assert time.monotonic() - killed < 10.0 + 30.0


@pytest.mark.slow
def test_interrupted_server_writes_predictions_and_ends_its_silos(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=500) as federation:
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        server.kill(signal.SIGINT)
        assert server.wait() == 130, server.output
        assert [silo.wait() for silo in silos] == [1, 1]
        assert all("the server has ended the run: it was interrupted" in silo.output for silo in silos)
        assert (federation.run_dir / "predictions.csv").exists()


@pytest.mark.slow
def test_server_does_not_wait_for_interrupted_silo(tmp_path: Path) -> None:
    with Federation(tmp_path, 3, comm_round=MANY, refine_steps=200) as federation:
        federation.comm["silo_timeout"] = 1000.0
        server, first, second, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        third.kill(signal.SIGINT)
        assert third.wait() == 130
        assert [party.wait() for party in (server, first, second)] == [0, 0, 0], server.output


@pytest.mark.slow
def test_resumed_server_with_waiting_silos_gives_equal_predictions(
    tmp_path: Path, one_process: Callable[..., Path]
) -> None:
    with Federation(tmp_path, 2, comm_round=MANY) as federation:
        server, *silos = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 2, "two rounds")
        server.kill()
        server.wait()
        assert federation.rounds_done() < MANY, "the run was over before the server was killed"
        again = federation.resume()
        assert [party.wait() for party in (again, *silos)] == [0, 0, 0], again.output
        assert output_bytes(federation.run_dir) == output_bytes(one_process(2, comm_round=MANY))
        assert_logs_agree(federation)


@pytest.mark.slow
def test_round_repeated_after_kill_is_charged_twice_to_privacy_budget(tmp_path: Path) -> None:
    with Federation(tmp_path, 2, comm_round=MANY, clip=0.5, sigma=1.0) as federation:
        server, *silos = federation.start_all()
        charged = federation.run_dir / "state" / "privacy.jsonl"

        def in_a_round() -> bool:
            # While it is stopped, it is in a round or between two.
            server.kill(signal.SIGSTOP)
            done = federation.rounds_done()
            if charged.exists() and charged.read_text().count("\n") == done + 1 > 1:
                return True
            server.kill(signal.SIGCONT)
            return False

        wait_until(in_a_round, "a round has begun and not ended")
        server.kill()
        server.wait()
        again = federation.resume()
        assert [party.wait() for party in (again, *silos)] == [0, 0, 0], again.output
        assert len(metrics(federation)) == MANY
        spent = json.loads((federation.run_dir / "summary.json").read_text())["epsilon_server"]
        assert spent == pytest.approx(gaussian_epsilon(2.0, MANY + 1, 1e-5), rel=1e-6)


def own_file(path: Path, names: list[str]) -> Path:
    """A silo's own digits, with the classes numbered as `names` says."""
    images, labels = np.zeros((20, 1, 8, 8), dtype=np.float32), np.arange(20) % 10
    np.savez(path, x_train=images, y_train=labels, class_names=np.array(names))
    return path


@pytest.mark.slow
def test_silo_with_other_handshake_is_rejected_with_reason(tmp_path: Path) -> None:
    turned = own_file(tmp_path / "turned.npz", [str(digit) for digit in reversed(range(10))])
    others: list[tuple[str, dict[str, Any], str]] = [
        ("model_args", {"model": "mlp"}, "the model of silo 1 differs from the server's"),
        ("data_args", {"own_data_file": str(turned)}, "class 0 is '9' at the silo and '0' at the server"),
        (
            "dp_args",
            {"clip": 1.0, "sigma": 0.5},
            "the dp_args of silo 1 (clip 1.0, sigma 0.5) differ from the server's (none)",
        ),
    ]
    with Federation(tmp_path, 1, comm_round=1) as federation:
        server = federation.start(0)
        for section, change, message in others:
            other = deepcopy(federation.config)
            other.setdefault(section, {}).update(change)
            wrong = federation.start(1, config=other)
            assert wrong.wait() == 2
            assert message in wrong.output
        right = federation.start(1)
        assert [server.wait(), right.wait()] == [0, 0], server.output
