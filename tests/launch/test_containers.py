"""The steps of launch/Dockerfile in a clean Debian, and the services of launch/docker-compose.yml in it.

There is no container engine here: debootstrap makes the base, chroot runs the steps, and a mount namespace per service
gives each its own /party. Needs root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mrtf_fedml.cli import main
from tests.backends.cross_silo.federation import free_ports
from tests.conftest import small_config, write_yaml

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
#: Settings that reach the network as the tests themselves do.
PASSED = ("http_proxy", "https_proxy", "no_proxy", "PIP_DEFAULT_TIMEOUT")
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, in order."""
    lines = [line for line in (LAUNCH / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((LAUNCH / "docker-compose.yml").read_text())["services"]
    return found


class Image:
    """A root folder in which the Dockerfile's steps have been run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {name: os.environ[name] for name in PASSED if name in os.environ}
        self.folder, self.entry = "/", [""]
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")

    def build(self) -> None:
        for instruction, text in instructions():
            if instruction == "RUN":
                self.run(["sh", "-c", text])
                # apt-get replaces the authorities; a network that has its own is reached with the host's.
                shutil.copy(f"/{AUTHORITIES}", self.root / AUTHORITIES)
            elif instruction == "ENV":
                name, _, value = text.partition("=")
                self.environment[name] = value
            elif instruction == "WORKDIR":
                self.folder = text
                (self.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY":
                *sources, target = text.split()
                place = self.root / self.folder.lstrip("/") / target
                for source in sources:
                    if (ROOT / source).is_dir():
                        shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                    else:
                        shutil.copy(ROOT / source, place)
            elif instruction == "ENTRYPOINT":
                self.entry = json.loads(text)
            else:
                assert instruction in ("FROM", "USER", "CMD"), instruction

    def command(self, words: list[str], party: Path | None = None, user: str = "root") -> list[str]:
        """The command that runs the words in the image, with this folder at /party."""
        # What a container engine mounts too. Without /dev/shm a user other than root can make no semaphore.
        enter = f"mount -t proc proc {self.root}/proc; mkdir -p {self.root}/dev/shm; "
        enter += f"mount -t tmpfs -o mode=1777,size=64m tmpfs {self.root}/dev/shm; "
        if party is not None:
            enter += f"mount --bind {party} {self.root}/party; "
        inside = f"cd {self.folder} && exec {shlex.join(words)}"
        enter += f"exec /usr/sbin/chroot --userspec={user} {self.root} sh -c {shlex.quote(inside)}"
        return ["unshare", "--mount", "sh", "-ec", enter]

    def variables(self) -> dict[str, str]:
        paths = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PIP_CERT": f"/{AUTHORITIES}"}
        return {**paths, "DEBIAN_FRONTEND": "noninteractive", **self.environment}

    def run(self, words: list[str], user: str = "root") -> str:
        done = subprocess.run(
            self.command(words, user=user), env=self.variables(), capture_output=True, text=True, timeout=3600
        )
        assert done.returncode == 0, f"{shlex.join(words)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    (base,) = [text for instruction, text in instructions() if instruction == "FROM"]
    suite = base.removeprefix("debian:").removesuffix("-slim")
    cached = Path(tempfile.gettempdir()) / f"mrtf-{suite}"
    if not cached.is_dir():
        part = cached.with_name(f".{cached.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, str(part)], check=True, stdout=subprocess.DEVNULL)
        part.rename(cached)
    root = tmp_path_factory.mktemp("image") / "root"
    subprocess.run(["cp", "-a", str(cached), str(root)], check=True)
    built = Image(root)
    try:
        built.build()
        yield built
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slow
def test_dockerfile_gives_a_command_that_a_user_without_rights_can_run(image: Image) -> None:
    assert "mrtf" in image.run([*image.entry, "--version"], user="party")
    assert "mrtf run has all that it needs" in image.run([*image.entry, "doctor"], user="party")


@pytest.mark.slow
def test_compose_services_run_an_invited_federation_to_its_end(image: Image, tmp_path: Path) -> None:
    with (image.root / "etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 localhost server\n")
    (port,) = free_ports(1)
    config = small_config(client_num_in_total=2, client_num_per_round=2, classes_per_client=5)
    words = ["--server", f"server:{port}", "--out", str(tmp_path / "federation"), "north", "south"]
    assert main(["invite", "--cf", str(write_yaml(tmp_path / "shared.yaml", config)), *words]) == 0
    processes = {}
    for name, service in services().items():
        (volume,) = service["volumes"]
        folder, _, target = volume.replace("${FEDERATION:?}", str(tmp_path / "federation")).rpartition(":")
        assert target == "/party"
        command = image.command([*image.entry, *service["command"]], Path(folder))
        processes[name] = subprocess.Popen(
            command, env=image.variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    outputs = {name: process.communicate(timeout=900)[0] for name, process in processes.items()}
    assert {name: process.returncode for name, process in processes.items()} == dict.fromkeys(processes, 0), outputs
    assert (tmp_path / "federation" / "server" / "run" / "predictions.csv").is_file()


def test_compose_services_are_what_the_start_scripts_run(tmp_path: Path) -> None:
    file = write_yaml(tmp_path / "shared.yaml", small_config(client_num_in_total=2, client_num_per_round=2))
    names = [name for name in services() if name != "server"]
    folder = tmp_path / "federation"
    assert main(["invite", "--cf", str(file), "--server", "server:8890", "--out", str(folder), *names]) == 0
    for name, service in services().items():
        assert f"mrtf {shlex.join(service['command'])} " in (folder / name / "start.sh").read_text()
        assert service["volumes"] == [f"${{FEDERATION:?}}/{name}:/party"]
