"""`mrtf preflight`: each check that can fail fails with its remedy and exit code 1."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import socket
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.commands.preflight import _MIN_CERTIFICATE_DAYS
from mrtf_fedml.errors import RunStopped
from mrtf_fedml.fedml_bridge.backends.cross_silo import certificates, preflight
from mrtf_fedml.fedml_bridge.backends.cross_silo.handshake import ASPECTS, Handshake
from mrtf_fedml.fedml_bridge.backends.cross_silo.preflight import ServerReport
from tests.backends.cross_silo.federation import free_ports
from tests.commands.test_invite import invite

ROLES = {"server": ["--role", "server"], "north": ["--role", "client", "--rank", "1"]}


def check(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """`mrtf preflight` in the folder of a party."""
    monkeypatch.chdir(folder / name)
    return main(["preflight", "--cf", "config.yaml", *ROLES[name], *words])


def failed(output: str) -> dict[str, str]:
    """The failed checks, each with its finding and its remedy."""
    return dict(re.findall(r"^  missing  (\S+) +(.*\n +-> .+)$", output, flags=re.MULTILINE))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folders of a server and two silos; nobody listens at the server's port."""
    assert invite(tmp_path, server=f"127.0.0.1:{free_ports(1)[0]}") == 0
    return tmp_path / "made"


def answer(monkeypatch: pytest.MonkeyPatch, differences: Mapping[str, str], clock: float = 0.0) -> None:
    """A server that replies with these differences."""
    monkeypatch.setattr(preflight, "reach_server", lambda args, settings: "accepts connections")
    report = ServerReport(differences, clock, 0.1)
    monkeypatch.setattr(preflight, "ask_server", lambda *_: report)


def test_every_check_passes_on_server_and_silo(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(made, "server", monkeypatch) == 0
    rows = re.findall(r"^  ok       (\S+)", capsys.readouterr().out, flags=re.MULTILINE)
    assert rows == ["key", "certificate", "data", "model", "version", "port", "disk", "memory", "traffic"]
    answer(monkeypatch, {})
    assert check(made, "north", monkeypatch) == 0
    rows = re.findall(r"^  ok       (\S+)", capsys.readouterr().out, flags=re.MULTILINE)
    assert rows[:5] == ["key", "certificate", "data", "model", "version"]
    assert rows[5:] == ["port", "server", "clock", *ASPECTS.values(), "disk", "memory", "traffic"]


def test_each_difference_from_the_server_fails_with_its_own_remedy(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Handshake("a", ["ill", "well"], ["age"], "digest", [1.0, 0.5])
    other = {**own.to_dict(), "model": "b", "class_names": ["well", "ill"], "features": ["size"]}
    other |= {"encoder": None, "privacy": None, "version": "0.0"}
    answer(monkeypatch, own.find_differences(other, 1), clock=-3600.0)
    assert check(made, "north", monkeypatch) == 1
    found = failed(capsys.readouterr().out)
    assert set(found) == {"clock", *ASPECTS.values()}
    assert "3600.0 s" in found["clock"]
    assert "class 0 is 'well'" in found["classes"]
    assert "'digest'" in found["encoder"]


def test_unreachable_port_and_silent_server_fail(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(made, "north", monkeypatch) == 1
    found = failed(capsys.readouterr().out)
    assert set(found) == {"port"}
    assert "refused" in found["port"]
    assert "comm_args.server_address" in found["port"]

    def refuse(*_: Any) -> ServerReport:
        raise RunStopped("the server has not replied within 3 s (Hostname Verification Check failed.)")

    answer(monkeypatch, {})
    monkeypatch.setattr(preflight, "ask_server", refuse)
    assert check(made, "north", monkeypatch) == 1
    found = failed(capsys.readouterr().out)
    assert set(found) == {"server"}
    assert "Hostname" in found["server"]
    assert "mrtf invite" in found["server"]


def test_port_in_use_fails_on_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        assert invite(tmp_path, server=f"127.0.0.1:{taken.getsockname()[1]}") == 0
        assert check(tmp_path / "made", "server", monkeypatch) == 1
    assert set(failed(capsys.readouterr().out)) == {"port"}


@pytest.mark.parametrize(("days", "remedy"), [(_MIN_CERTIFICATE_DAYS - 1, "--rotate"), (-1, "expired")])
def test_certificate_that_expires_soon_or_has_expired_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], days: int, remedy: str
) -> None:
    monkeypatch.setattr(certificates, "_PARTY_DAYS", days)
    monkeypatch.setattr(certificates, "_BACKDATED", datetime.timedelta(days=5))
    assert invite(tmp_path, server=f"127.0.0.1:{free_ports(1)[0]}") == 0
    answer(monkeypatch, {})
    assert check(tmp_path / "made", "north", monkeypatch) == 1
    found = failed(capsys.readouterr().out)
    assert "certificate" in found
    assert remedy in found["certificate"]


def test_certificate_of_another_party_fails_and_a_key_that_others_read_is_noted(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("certificate.pem", "key.pem"):
        shutil.copy(made / "south" / file, made / "north" / file)
    os.chmod(made / "north" / "key.pem", 0o644)
    answer(monkeypatch, {})
    assert check(made, "north", monkeypatch) == 1
    output = capsys.readouterr().out
    assert "'silo1'" in failed(output)["certificate"]
    assert "note     key" in output
    assert "chmod 600" in output


def test_full_disk_and_small_memory_fail(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = namedtuple("usage", "total used free")
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(1000))
    answer(monkeypatch, {})
    for name in ROLES:
        assert check(made, name, monkeypatch) == 1
        assert set(failed(capsys.readouterr().out)) == {"disk", "memory"}


def test_missing_samples_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invite(tmp_path, server="127.0.0.1:9000", own_data_file="data.npz") == 0
    assert check(tmp_path / "made", "north", monkeypatch) == 1
    found = failed(capsys.readouterr().out)
    assert set(found) == {"data"}
    assert "data.npz" in found["data"]


def test_simulation_is_rejected(tmp_path: Path) -> None:
    assert invite(tmp_path) == 0
    words = ["--set", "training_type=simulation", "--set", "backend=sp"]
    file = tmp_path / "made" / "server" / "config.yaml"
    assert main(["preflight", "--cf", str(file), *ROLES["server"], *words]) == 2
