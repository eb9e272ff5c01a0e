"""Full disks, closed folders and signals: a sentence, the right exit code, and a folder that can be gone on with."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.cli import main
from tests.backends.cross_silo.federation import Party, wait_until
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml
from tests.fedml_bridge.hindrances import FillsTheDisk

MEGABYTES = 20


def write_config(folder: Path, run_dir: Path, **changes: Any) -> Path:
    callbacks = ["tests.fedml_bridge.hindrances:FillsTheDisk", "tests.fedml_bridge.hindrances:Waits"]
    config = small_config(run_dir=str(run_dir), comm_round=3, callbacks=callbacks, **changes)
    return write_yaml(folder / "c.yaml", config)


@pytest.fixture(scope="module")
def uninterrupted_outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert main(["run", "--cf", str(write_config(folder, folder / "run"))]) == 0
    return output_bytes(folder / "run")


class LimitedFiles:
    """Files that cannot grow: the kernel refuses writes as for a full disk, without root privileges."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        # pytest hears the log in a file, which cannot grow either: that is no fault of the run's.
        logging.raiseExceptions = False
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._before[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)
        logging.raiseExceptions = True


class SmallDisk:
    """A file system of 20 MB in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        free = os.statvfs(self.path)
        with (self.path / "ballast").open("ab") as ballast:
            ballast.write(bytes(free.f_bavail * free.f_bsize))

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)


@pytest.fixture(params=["files that cannot grow", "a disk of 20 MB"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LimitedFiles | SmallDisk]:
    """The second is the first again where we may mount nothing."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = "MB" in request.param and mount(place, "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs")
    small: LimitedFiles | SmallDisk = SmallDisk(place) if mounted else LimitedFiles(place)
    yield small
    small.free()
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def mount(place: Path, *words: str) -> bool:
    return os.geteuid() == 0 and subprocess.run(["mount", *words, str(place)], capture_output=True).returncode == 0


def exit_code(disk: LimitedFiles | SmallDisk, *words: str) -> int:
    """The exit code of `mrtf`. The limit is lifted before it is returned: pytest writes files too."""
    try:
        return main(words)
    finally:
        disk.free()


@pytest.mark.parametrize("moment", ["1", "end"], ids=["in a round", "in the answer"])
def test_disk_that_fills_ends_the_run_resumably(
    tmp_path: Path,
    disk: LimitedFiles | SmallDisk,
    uninterrupted_outputs: tuple[bytes, bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    run_dir = disk.path / "run"
    file = write_config(tmp_path, run_dir)
    monkeypatch.setenv("FILL_AT", moment)
    monkeypatch.setattr(FillsTheDisk, "fill", disk.fill)
    assert exit_code(disk, "run", "--cf", str(file)) == 1
    message = sentence(capsys)
    assert "cannot be written" in message
    assert f"mrtf run --resume {run_dir}" in message
    # No file is partially written, and a resume on a full disk reports it too.
    assert [path.name for path in run_dir.rglob("*.part")] == []
    monkeypatch.delenv("FILL_AT")
    disk.fill()
    assert exit_code(disk, "run", "--resume", str(run_dir)) == 1
    assert "cannot be written" in sentence(capsys)
    assert main(["run", "--resume", str(run_dir)]) == 0
    assert output_bytes(run_dir) == uninterrupted_outputs
    assert [line["round"] for line in read_metrics(run_dir)] == [0, 1, 2]


def test_disk_full_from_the_start_exits_with_one_sentence(
    tmp_path: Path, disk: LimitedFiles | SmallDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_config(tmp_path, disk.path / "run")
    disk.fill()
    assert exit_code(disk, "run", "--cf", str(file)) in (1, 2)
    assert sentence(capsys)
    assert main(["run", "--cf", str(file)]) == 0


def test_run_directory_that_becomes_read_only_ends_the_run_resumably(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    file = write_config(tmp_path, run_dir)
    closed = Closed(run_dir)
    monkeypatch.setenv("FILL_AT", "1")
    monkeypatch.setattr(FillsTheDisk, "fill", closed.close)
    try:
        assert main(["run", "--cf", str(file)]) == 1
        assert "cannot be written" in sentence(capsys)
        assert main(["run", "--resume", str(run_dir)]) == 2
        assert "cannot be written" in sentence(capsys)
    finally:
        closed.open()
    monkeypatch.delenv("FILL_AT")
    assert main(["run", "--resume", str(run_dir)]) == 0
    assert [line["round"] for line in read_metrics(run_dir)] == [0, 1, 2]


class Closed:
    """A folder mounted over itself, to be read only, since root writes where a mode forbids it.

    Where we may mount nothing, a file stands where the folder of states was.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.mounted = False

    def close(self) -> None:
        self.mounted = mount(self.run_dir, "--bind", str(self.run_dir))
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(self.run_dir)], check=True)
            return
        (self.run_dir / "state").rename(self.run_dir.with_name("aside"))
        (self.run_dir / "state").touch()

    def open(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.run_dir)], check=True)
            return
        (self.run_dir / "state").unlink()
        self.run_dir.with_name("aside").rename(self.run_dir / "state")


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """The last message on stderr; there is never a traceback."""
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT twice"]
)
def test_signal_ends_the_run_with_its_exit_code_resumably(
    tmp_path: Path,
    uninterrupted_outputs: tuple[bytes, bytes],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
) -> None:
    """The first signal comes between a round's end and its record; the second while predictions are written."""
    run_dir = tmp_path / "run"
    words = ["run", "--cf", str(write_config(tmp_path, run_dir))]
    party = Party(waiting_command_line, words, tmp_path / "log")
    try:
        wait_until((run_dir / "at_round").exists, "the second round is done")
        party.kill(number)
        (run_dir / "at_round").unlink()
        wait_until((run_dir / "at_end").exists, "the predictions are about to be written")
        if number == signal.SIGINT:
            party.kill(number)
        else:
            (run_dir / "at_end").unlink()
        assert party.wait() == code, party.output
    finally:
        party.process.kill()
    assert "Traceback" not in party.output
    message = party.output.splitlines()[-1]
    what = "after 2 of 3 rounds;" if number == signal.SIGTERM else "while the results were written; 2 of 3 rounds"
    assert f"mrtf: interrupted {what}" in message
    assert f"mrtf run --resume {run_dir}" in message
    assert [line["round"] for line in read_metrics(run_dir)] == [0, 1], "a round that was done is kept"
    assert (run_dir / "summary.json").exists() == (number == signal.SIGTERM)
    assert main(["run", "--resume", str(run_dir)]) == 0
    assert output_bytes(run_dir) == uninterrupted_outputs


def waiting_command_line(words: list[str]) -> int:
    os.environ["WAIT_AT"] = "both"
    return main(words)
