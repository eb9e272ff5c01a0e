"""A run that is interrupted, killed or damaged goes on where it was, and equals one that was never stopped."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mrtf_fedml.cli import main
from tests.conftest import answer, metrics, small_config, write_yaml
from tests.fedml_bridge.small_run import digits_file, run


def test_a_resumed_run_equals_one_that_was_never_stopped(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = run(tmp_path / "whole", preset="tuned", comm_round=4)
    parts = run(tmp_path / "parts", preset="tuned", comm_round=2)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=4"]) == 0
    assert answer(parts) == answer(whole)
    assert [line["acc"] for line in metrics(parts)] == [line["acc"] for line in metrics(whole)]


def test_an_interrupted_run_keeps_what_it_finished_and_goes_on(tmp_path: Path, finished: Path) -> None:
    run_dir = tmp_path / "run"
    file = write_yaml(tmp_path / "config.yaml", small_config(run_dir=str(run_dir), comm_round=500))
    command = [sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (run_dir / "state" / "server.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["interrupted"]
    assert (run_dir / "predictions.csv").read_text().count("\n") == 600
    done = summary["rounds"]
    assert f"interrupted after {done} of 500 rounds" in told
    assert f"Go on with: mrtf run --resume {run_dir}" in told
    assert len(metrics(run_dir)) == done
    assert main(["run", "--resume", str(run_dir), "--set", f"comm_round={done + 1}"]) == 0
    assert len(metrics(run_dir)) == done + 1


def test_a_run_that_was_killed_before_its_answer_finishes_it_from_its_state(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    rounds = (run_dir / "metrics.jsonl").read_bytes()
    owed = ("predictions.csv", "probabilities.npy", "model.safetensors", "summary.json", "report.html")
    # As a kill leaves it: after the last state, and in the middle of the answer.
    for gone in (owed, owed[3:], owed[4:]):
        for name in (*gone, "state/answered.json"):
            (run_dir / name).unlink()
        assert main(["run", "--resume", str(run_dir)]) == 0
        assert answer(run_dir) == answer(finished)
        assert (run_dir / "summary.json").read_bytes() == (finished / "summary.json").read_bytes()
        assert (run_dir / "report.html").exists()
        assert (run_dir / "metrics.jsonl").read_bytes() == rounds, "no round is repeated"
    assert main(["run", "--resume", str(run_dir)]) == 2
    assert "has done all its 3 rounds; raise comm_round" in capsys.readouterr().err


def test_a_damaged_state_is_replaced_by_the_one_before(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    newest = run_dir / "state" / "server.safetensors"
    content = bytearray(newest.read_bytes())
    content[-3] ^= 1
    newest.write_bytes(content)
    assert main(["run", "--resume", str(run_dir)]) == 0
    assert (run_dir / "state" / "broken-server.safetensors").read_bytes() == content
    assert answer(run_dir) == answer(finished)
    assert [line["round"] for line in metrics(run_dir)] == [0, 1, 2]
    for path in (run_dir / "state").glob("server*.safetensors"):
        path.write_bytes(b"")
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=4"]) == 2
    assert "no state in" in capsys.readouterr().err


def test_a_resume_notices_other_data_and_a_foreign_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = digits_file(tmp_path / "digits.npz", permuted=False)
    run_dir = run(tmp_path, dataset="npz", data_file=str(file), comm_round=1, federated_optimizer="FedAvg")
    digits_file(file, permuted=True)
    resume = ["run", "--resume", str(run_dir), "--set", "comm_round=2"]
    # A process of its own, since the log of this one belongs to its first run.
    told = subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", *resume], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert f"{file} has changed since the run began" in told.stderr
    assert main([*resume, "--set", "comm_round=3", "--set", "model=mlp"]) == 2
    assert "does not fit the model" in capsys.readouterr().err


def test_two_processes_do_not_resume_one_folder(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    code = "import sys, pathlib; from mrtf_fedml.rounds.lock import FolderLock as L; "
    code += "lock = L(pathlib.Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and path.name != "lock"}
    resume = ["run", "--resume", str(run_dir), "--set", "comm_round=4"]
    command = [sys.executable, "-c", code, str(run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert main(resume) == 2
        told = capsys.readouterr().err
        assert f"another process (process {other.pid} on " in told
        assert {path: path.read_bytes() for path in before} == before
        other.kill()
    assert main(resume) == 0, "a process that was killed holds nothing"
    assert len(metrics(run_dir)) == 4


def test_fewer_rounds_than_are_done_is_said_to_be_fewer(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--resume", str(finished), "--set", "comm_round=2"]) == 2
    assert "has done 3 rounds already, more than comm_round 2" in capsys.readouterr().err


def test_a_run_interrupted_in_its_first_round_says_that_nothing_was_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stopping.py").write_text(
        "import mrtf_fedml\n\n\n"
        "class Stop(mrtf_fedml.Callback):\n"
        "    def on_asking(self, run, clients):\n        raise KeyboardInterrupt\n"
    )
    monkeypatch.chdir(tmp_path)
    config = small_config(run_dir=str(tmp_path / "run"), callbacks=["stopping:Stop"])
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 130
    assert "nothing was finished" in capsys.readouterr().err


def test_a_run_is_reported_and_resumed_from_another_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    (work / "wards_of_mine.py").write_text(
        "import numpy as np\n"
        "from mrtf_fedml.data import Source\n\n\n"
        "def load():\n"
        "    x = np.eye(40)\n"
        "    ids = [str(n) for n in range(10)]\n"
        "    return Source('wards', x[:30], np.arange(30) % 2, x[30:], None, ['no', 'yes'], ids)\n"
    )
    np.savez(work / "own.npz", x_train=np.eye(30), y_train=np.arange(30) % 2, x_test=np.eye(30)[:9])
    small = {"model": "mlp", "hidden_size": 8, "comm_round": 1, "partition_method": "iid"}
    clients = {"client_num_in_total": 2, "client_num_per_round": 2}
    monkeypatch.chdir(work)
    for name, keys in (
        ("by_file", {"dataset": "npz", "data_file": "own.npz"}),
        ("by_loader", {"loader": "wards_of_mine:load"}),
    ):
        config = small_config(**keys, **small, **clients, run_dir=name)
        assert main(["run", "--cf", str(write_yaml(work / f"{name}.yaml", config))]) == 0
    names = [json.loads((work / name / "summary.json").read_text())["dataset"] for name in ("by_file", "by_loader")]
    assert names == ["own", "wards_of_mine:load"], "a run is called by the file or the function, not `digits`"
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(work)])
    monkeypatch.delitem(sys.modules, "wards_of_mine")
    capsys.readouterr()
    for name in ("by_file", "by_loader"):
        assert main(["report", str(work / name)]) == 0
        assert "without pictures" not in capsys.readouterr().err
        assert main(["run", "--resume", str(work / name), "--set", "comm_round=2"]) == 0
    (work / "own.npz").unlink()
    assert main(["report", str(work / "by_file")]) == 0
    assert "without pictures of the samples" in capsys.readouterr().err
