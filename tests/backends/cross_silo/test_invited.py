"""From `mrtf invite` to a finished run: preflight on every party, and a silo that is revoked while it trains."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from mrtf_fedml.cli import main
from tests.backends.cross_silo.federation import Party, _command_line, free_ports, wait_until
from tests.conftest import read_metrics, small_config, write_yaml

WORDS = {"server": ["--role", "server"], "north": ["--role", "client", "--rank", "1"]}
WORDS["south"] = ["--role", "client", "--rank", "2"]


class Invited:
    """A server and two silos, each in the folder that `mrtf invite` has written."""

    def __init__(self, folder: Path, **changes: object) -> None:
        config = small_config(client_num_in_total=2, client_num_per_round=2, classes_per_client=5, **changes)
        config["comm_args"] |= {"silo_timeout": 120.0, "start_timeout": 300.0}
        file = write_yaml(folder / "shared.yaml", config)
        self.folder = folder / "federation"
        address = f"127.0.0.1:{free_ports(1)[0]}"
        words = ["--cf", str(file), "--server", address, "--out", str(self.folder), "north", "south"]
        assert main(["invite", *words]) == 0
        self.parties: list[Party] = []

    def __enter__(self) -> Invited:
        return self

    def __exit__(self, *_: object) -> None:
        for party in self.parties:
            if party.process.is_alive():
                party.process.kill()
            party.process.join(10)

    def start(self, name: str, command: str = "run", *more: str) -> Party:
        """What start.sh runs, in the party's folder."""
        before = os.getcwd()
        os.chdir(self.folder / name)
        try:
            log = self.folder / f"{name}-{command}-{len(self.parties)}.log"
            self.parties.append(Party(_command_line, [command, "--cf", "config.yaml", *WORDS[name], *more], log))
        finally:
            os.chdir(before)
        return self.parties[-1]


@pytest.mark.slow
def test_invited_parties_pass_preflight_and_a_revoked_silo_is_refused_at_once(tmp_path: Path) -> None:
    with Invited(tmp_path, comm_round=60, refine_steps=100) as federation:
        ready = federation.start("server", "preflight")
        assert ready.wait() == 0, ready.output
        server = federation.start("server")
        asked = federation.start("north", "preflight")
        assert asked.wait() == 0, asked.output
        for name in ("certificate", "data", "server", "clock", "version", "model", "encoder", "classes", "traffic"):
            assert f"  ok       {name}" in asked.output
        other = federation.start("south", "preflight", "--set", "model=mlp", "--set", "clip=1.0")
        assert other.wait() == 1, other.output
        assert "missing  model" in other.output
        assert "missing  dp_args" in other.output
        assert "ok       classes" in other.output
        run_dir = federation.folder / "server" / "run"
        north, south = federation.start("north"), federation.start("south")
        wait_until(lambda: (run_dir / "metrics.jsonl").exists(), "a round")
        assert main(["invite", "--revoke", "south", "--out", str(federation.folder)]) == 0
        revoked = time.monotonic()
        assert south.wait() == 1, south.output
        assert time.monotonic() < revoked + 60.0
        assert "its certificate is revoked" in south.output
        again = federation.start("south")
        assert again.wait() == 1
        assert "its certificate is revoked" in again.output
        rounds = len(read_metrics(run_dir))
        assert main(["invite", "--rotate", "south", "--out", str(federation.folder)]) == 0
        back = federation.start("south")
        wait_until(
            lambda: any(1 in line["clients"] for line in read_metrics(run_dir)[rounds + 1 :]), "south in a round"
        )
        assert [party.wait() for party in (server, north, back)] == [0, 0, 0], server.output
    lines = read_metrics(run_dir)
    assert any(line["clients"] == [0] for line in lines), "rounds without the revoked silo"
    assert main(["audit", "verify", str(run_dir), str(federation.folder / "north" / "run-silo1")]) == 0


@pytest.mark.slow
def test_preflight_without_server_fails_with_a_remedy(tmp_path: Path) -> None:
    with Invited(tmp_path) as federation:
        config = federation.folder / "north" / "config.yaml"
        changed = yaml.safe_load(config.read_text())
        changed["comm_args"]["start_timeout"] = 3.0
        write_yaml(config, changed)
        alone = federation.start("north", "preflight")
        assert alone.wait() == 1
        assert "missing  port" in alone.output
        assert "mrtf run --role server" in alone.output
        os.replace(federation.folder / "south" / "certificate.pem", federation.folder / "north" / "certificate.pem")
        wrong = federation.start("north", "preflight")
        assert wrong.wait() == 1
        assert "missing  certificate" in wrong.output
