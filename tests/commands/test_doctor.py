from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from mrtf_fedml.commands import doctor as under_test
from mrtf_fedml.commands.doctor import Check


@pytest.mark.slow
def test_doctor_in_this_environment_returns_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert under_test.main(argparse.Namespace()) == 0
    shown = capsys.readouterr().out
    assert "0.9.6, imports in" in shown
    assert "mrtf run has all that it needs" in shown
    assert "missing" not in shown


def test_doctor_with_a_missing_requirement_returns_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = Check("thing", False, "not installed", "install the thing")
    monkeypatch.setattr(under_test, "CHECKS", (under_test.check_python, lambda: missing))
    assert under_test.main(argparse.Namespace()) == 1
    shown = capsys.readouterr().out
    assert "missing  thing" in shown
    assert "-> install the thing" in shown
    assert "will not work: see thing" in shown


def test_doctor_with_a_missing_option_returns_zero_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = Check("extra", False, "none", "for large runs alone", required=False)
    monkeypatch.setattr(under_test, "CHECKS", (lambda: note,))
    assert under_test.main(argparse.Namespace()) == 0
    assert "note     extra" in capsys.readouterr().out


@pytest.mark.parametrize("home", ["/proc", "/proc/nobody", "/dev/null"])
def test_check_home_fails_where_even_root_cannot_write(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("HOME", home)
    check = under_test.check_home()
    assert not check.passed
    assert f"{home}/.fedml" in check.found
    assert "HOME=" in check.remedy


def test_check_home_passes_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "new"))
    assert under_test.check_home().passed
    assert list(tmp_path.iterdir()) == []


def package(folder: Path, name: str, version: str, code: str) -> None:
    """An installed distribution `name` whose import runs `code`."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def check_in(folder: Path, check: str) -> list[str]:
    """Runs a check where the packages of `folder` come before the installed ones."""
    code = (
        f"from mrtf_fedml.commands.doctor import {check} as check; c = check(); "
        "print(c.passed, c.found, c.remedy, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/nowhere", "PYTHONPATH": f"{folder}:{Path.cwd()}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_check_fedml_rejects_another_version(tmp_path: Path) -> None:
    package(tmp_path, "fedml", "0.8.9", "")
    well, found, remedy = check_in(tmp_path, "check_fedml")
    assert (well, found) == ("False", "0.8.9")
    assert "fedml==0.9.6" in remedy


def test_check_fedml_names_missing_pkg_resources_and_the_remedy(tmp_path: Path) -> None:
    package(tmp_path, "fedml", "0.9.6", "raise ModuleNotFoundError(\"No module named 'pkg_resources'\")")
    well, found, remedy = check_in(tmp_path, "check_fedml")
    assert well == "False"
    assert "No module named 'pkg_resources'" in found
    assert "setuptools<81" in remedy


def test_check_fedml_quotes_another_import_error(tmp_path: Path) -> None:
    package(tmp_path, "fedml", "0.9.6", "raise RuntimeError('broken in two')")
    well, found, _ = check_in(tmp_path, "check_fedml")
    assert well == "False"
    assert "RuntimeError: broken in two" in found


def test_check_torch_reports_an_import_error(tmp_path: Path) -> None:
    package(tmp_path, "torch", "2.2", "raise ImportError('libtorch.so: cannot open shared object file')")
    well, found, _ = check_in(tmp_path, "check_torch")
    assert well == "False"
    assert "libtorch.so" in found


def test_check_torchvision_reports_a_mismatch(tmp_path: Path) -> None:
    package(tmp_path, "torchvision", "1.0", "raise RuntimeError('operator torchvision::nms does not exist')")
    well, found, remedy = check_in(tmp_path, "check_torchvision")
    assert well == "False"
    assert "nms" in found
    assert "torch torchvision" in remedy


def test_check_numpy_rejects_version_2(tmp_path: Path) -> None:
    package(tmp_path, "numpy", "2.1.0", "")
    well, _, remedy = check_in(tmp_path, "check_numpy")
    assert well == "False"
    assert "numpy<2" in remedy


def test_try_import_hides_the_users_home(tmp_path: Path) -> None:
    package(tmp_path, "fedml", "0.9.6", "from pathlib import Path; (Path.home() / 'seen').write_text('')")
    assert check_in(tmp_path, "check_fedml")[0] == "True"
    assert not (tmp_path / "seen").exists()


def test_try_import_stops_after_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "sleepy", "1", "import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = under_test._try_import("sleepy", timeout=0.5)
    assert not outcome.succeeded
    assert "no end after" in outcome.error


def test_importing_the_doctor_imports_nothing_heavy() -> None:
    code = "import sys, mrtf_fedml.commands.doctor; sys.exit(bool({'torch', 'fedml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
