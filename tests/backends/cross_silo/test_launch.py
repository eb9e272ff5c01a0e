"""`fedml launch launch/job.yaml`, as far as it goes without the platform, and then what an agent does with the package.

FedML's own code parses the job, packs it, and writes the script that an agent runs. One thing deviates, since there is
no platform: the line of that script that sends the run to the platform is deleted, and the broker and the bucket that
the platform would have given are named in the job's own configuration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from fedml.cli.modules.federate import fedml_federate
from fedml.computing.scheduler.comm_utils.job_utils import JobRunnerUtils
from fedml.computing.scheduler.scheduler_entry.constants import Constants

from tests.backends.cross_silo.federation import PATIENCE

ROOT = Path(__file__).parents[3]
SHIPPED = ("mrtf_fedml", "fedml_configs", "launch", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", ".gitignore")
PLATFORM_LINE = "export FEDML_USING_MLOPS=true\n"
SMALL = {"comm_round": 2, "epochs": 1}


def build(folder: Path, comm_args: dict[str, Any]) -> dict[str, Path]:
    """The packages that `fedml federate build` makes of launch/job.yaml, from a copy of the repository."""
    clone = folder / "clone"
    clone.mkdir()
    for name in SHIPPED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name)
    # An environment and earlier runs may be there, by the gigabyte; they stay at home.
    for name in (".venv", "runs", ".git"):
        (clone / name).mkdir()
        (clone / name / "large").touch()
    job_file = clone / "launch" / "job.yaml"
    job = yaml.safe_load(job_file.read_text())
    job["train_args"] |= SMALL
    job["comm_args"] |= comm_args
    job_file.write_text(yaml.safe_dump(job))
    done = CliRunner().invoke(fedml_federate, ["build", "-d", str(folder / "packages"), str(job_file)])
    assert done.exit_code == 0, done.output
    return {role: folder / "packages" / f"{role}-package.zip" for role in ("server", "client")}


def unpacked(package: Path, folder: Path) -> Path:
    """What an agent has after its download."""
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)
    return folder / package.stem


def agents_script(place: Path, rank: int) -> str:
    """The command that an agent runs, made by FedML; the script lies beside the workspace."""
    entry = yaml.safe_load((place / "conf" / "fedml.yaml").read_text())["entry_config"]
    script = place / entry["entry_file"]
    config = yaml.safe_load((place / "fedml" / entry["conf_file"]).read_text())
    (command,) = JobRunnerUtils.generate_job_execute_commands(
        7, rank, "release", entry["package_type"], "bash", str(script), config, None, None, None, rank
    )
    content = script.read_text()
    assert content.count(PLATFORM_LINE) == 1
    assert f"export FEDML_CLIENT_RANK={rank}\n" in content
    script.write_text(content.replace(PLATFORM_LINE, ""))
    return command


def test_the_kind_of_the_job_is_one_that_fedml_knows() -> None:
    job = yaml.safe_load((ROOT / "launch" / "job.yaml").read_text())
    assert job["job_subtype"] == Constants.JOB_TASK_SUBTYPE_TRAIN_CROSS_SILO_TRAINING
    assert job["job_type"] in Constants.JOB_TASK_TYPE_MAP


def test_the_packages_hold_the_plugin_the_commands_and_our_settings(tmp_path: Path) -> None:
    packages = build(tmp_path, {})
    for role, command in (("server", "--role server --rank 0"), ("client", "--role client --rank $FEDML_CLIENT_RANK")):
        place = unpacked(packages[role], tmp_path / role)
        config = yaml.safe_load((place / "fedml" / "config" / "fedml_config.yaml").read_text())
        assert config["train_args"]["federated_optimizer"] == "MrTF"
        assert config["mrtf_args"] == {"preset": "tuned", "refine_steps": 100}
        assert (place / "fedml" / "mrtf_fedml" / "cli.py").exists()
        assert not list((place / "fedml").rglob("large"))
        bootstrap = place / "fedml" / config["environment_args"]["bootstrap"]
        assert "pip install" in bootstrap.read_text()
        script = agents_script(place, 0 if role == "server" else 1).split()[1]
        assert f"mrtf run --cf config/fedml_config.yaml {command}" in Path(script).read_text()


def a_devices_python(folder: Path) -> dict[str, str]:
    """An environment in which the bootstrap may install, with all that FedML's own installation has brought."""
    venv.create(folder, with_pip=False, symlinks=True)
    home = sysconfig.get_path("purelib", "venv", vars={"base": str(folder)})
    # Below the device's own packages: what the bootstrap installs is found first.
    Path(home, "fedml.pth").write_text(sysconfig.get_path("purelib") + "\n")
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PIP_USER")}
    # pip would fetch setuptools to build with; the one that is there serves.
    return variables | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PIP_NO_BUILD_ISOLATION": "0"}


@pytest.mark.slow
def test_one_server_and_two_silos_run_the_packages_to_the_end(tmp_path: Path, mqtt_s3: dict[str, Any]) -> None:
    packages = build(tmp_path, mqtt_s3)
    variables = a_devices_python(tmp_path / "device")
    processes = []
    try:
        for rank in range(3):
            place = unpacked(packages["server" if rank == 0 else "client"], tmp_path / str(rank))
            if rank == 0:
                bootstrap = place / "fedml" / "fedml_bootstrap_generated.sh"
                (command,) = JobRunnerUtils.generate_bootstrap_commands(
                    str(bootstrap), str(bootstrap.parent), bootstrap.name
                )
                subprocess.run(["bash", "-ec", command], env=variables, check=True, timeout=2 * PATIENCE)
            script = agents_script(place, rank)
            with (tmp_path / f"{rank}.log").open("w") as log:
                process = subprocess.Popen(
                    ["bash", "-c", script], cwd=place / "fedml", env=variables, stdout=log, stderr=log
                )
            processes.append(process)
        codes = [process.wait(timeout=2 * PATIENCE) for process in processes]
        assert codes == [0, 0, 0], (tmp_path / "0.log").read_text()
    finally:
        for process in processes:
            process.kill()
    (run_dir,) = (tmp_path / "0" / "server-package" / "fedml" / "runs").iterdir()
    assert (run_dir / "predictions.csv").read_text().count("\n") == 600
    assert "the run is over" in (tmp_path / "2.log").read_text()
    assert sys.prefix not in subprocess.check_output(
        ["python", "-c", "import mrtf_fedml; print(mrtf_fedml.__file__)"], env=variables, text=True
    )
