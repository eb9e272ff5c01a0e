"""A run that was interrupted, killed or damaged resumes and equals an uninterrupted one."""

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
from tests.conftest import output_bytes, read_metrics, small_config, write_yaml
from tests.fedml_bridge.small_run import digits_file, run


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = run(tmp_path / "whole", preset="tuned", comm_round=4)
    parts = run(tmp_path / "parts", preset="tuned", comm_round=2)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=4"]) == 0
    assert output_bytes(parts) == output_bytes(whole)
    assert [line["acc"] for line in read_metrics(parts)] == [line["acc"] for line in read_metrics(whole)]


RESULTS = (
    "agreement.npy",
    "predictions.csv",
    "probabilities.npy",
    "model.safetensors",
    "model_card.md",
    "summary.json",
)


@pytest.mark.parametrize("removed", ["predictions.csv", "state/results.json"])
def test_resume_of_a_finished_run_writes_missing_results(tmp_path: Path, finished_run: Path, removed: str) -> None:
    """A file that was deleted, or a kill between the last checkpoint and the results, of which none is there."""
    run_dir = tmp_path / "run"
    shutil.copytree(finished_run, run_dir)
    before = {name: (run_dir / name).read_bytes() for name in RESULTS}
    for name in RESULTS if removed.startswith("state") else ():
        (run_dir / name).unlink()
    (run_dir / removed).unlink()
    assert main(["run", "--resume", str(run_dir)]) == 0
    assert {name: (run_dir / name).read_bytes() for name in RESULTS} == before
    assert main(["run", "--resume", str(run_dir)]) == 2, "nothing is missing now"


def test_resumed_run_with_different_models_equals_uninterrupted_run(tmp_path: Path) -> None:
    models = {
        "models": {"rigid": "tests.models.rigid:Rigid", "small": "linear", "large": "lenet"},
        "broadcast": "refined",
    }
    models |= {"client_num_in_total": 3, "client_num_per_round": 3, "client_models": ["large", "rigid", "small"]}
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = run(tmp_path / "whole", preset="tuned", comm_round=4, **models)
    parts = run(tmp_path / "parts", preset="tuned", comm_round=2, **models)
    assert main(["run", "--resume", str(parts), "--set", "comm_round=4"]) == 0
    assert '"predicting_model"' in (whole / "metrics.jsonl").read_text(), "one model predicts alone"
    assert output_bytes(parts) == output_bytes(whole)
    out = tmp_path / "more.csv"
    digits = digits_file(tmp_path / "digits.npz", permuted=False)
    # 3: it finds the samples different, as after so few rounds it may.
    assert main(["predict", str(whole), str(digits), "--out", str(out)]) in (0, 3)
    labels = [line.split(",")[2] for line in out.read_text().splitlines()]
    assert labels == [line.split(",")[2] for line in (whole / "predictions.csv").read_text().splitlines()]


@pytest.mark.slow
def test_interrupted_run_keeps_finished_rounds_and_resumes(tmp_path: Path, finished_run: Path) -> None:
    run_dir = tmp_path / "run"
    file = write_yaml(tmp_path / "config.yaml", small_config(run_dir=str(run_dir), comm_round=500))
    command = [sys.executable, "-m", "mrtf_fedml.cli", "run", "--cf", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (run_dir / "state" / "server.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in errors
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["interrupted"]
    assert (run_dir / "predictions.csv").read_text().count("\n") == 600
    done = summary["rounds"]
    assert f"interrupted after {done} of 500 rounds" in errors
    assert f"Resume with: mrtf run --resume {run_dir}" in errors
    assert len(read_metrics(run_dir)) == done
    assert main(["run", "--resume", str(run_dir), "--set", f"comm_round={done + 1}"]) == 0
    assert len(read_metrics(run_dir)) == done + 1


def test_resume_after_kill_before_results_writes_them_from_the_checkpoint(
    tmp_path: Path, finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished_run, run_dir)
    rounds = (run_dir / "metrics.jsonl").read_bytes()
    owed = ("predictions.csv", "probabilities.npy", "model.safetensors", "summary.json", "report.html")
    # As after a kill: the last state is complete, the predictions are partially written.
    for gone in (owed, owed[3:], owed[4:]):
        for name in (*gone, "state/results.json"):
            (run_dir / name).unlink()
        assert main(["run", "--resume", str(run_dir)]) == 0
        assert output_bytes(run_dir) == output_bytes(finished_run)
        assert (run_dir / "summary.json").read_bytes() == (finished_run / "summary.json").read_bytes()
        assert (run_dir / "report.html").exists()
        assert (run_dir / "metrics.jsonl").read_bytes() == rounds, "no round is repeated"
    assert main(["run", "--resume", str(run_dir)]) == 2
    assert "has done all its 3 rounds; raise comm_round" in capsys.readouterr().err


def test_resume_with_damaged_checkpoint_uses_the_one_before(
    tmp_path: Path, finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished_run, run_dir)
    newest = run_dir / "state" / "server.safetensors"
    # A run that is not finished has the checkpoint of the round before too.
    (tmp_path / "before").mkdir()
    before = run(tmp_path / "before", comm_round=2)
    shutil.copy(before / "state" / "server.safetensors", run_dir / "state" / "server-1.safetensors")
    content = bytearray(newest.read_bytes())
    content[-3] ^= 1
    newest.write_bytes(content)
    assert main(["run", "--resume", str(run_dir)]) == 0
    assert (run_dir / "state" / "damaged-server.safetensors").read_bytes() == content
    assert output_bytes(run_dir) == output_bytes(finished_run)
    assert [line["round"] for line in read_metrics(run_dir)] == [0, 1, 2]
    for path in (run_dir / "state").glob("server*.safetensors"):
        path.write_bytes(b"")
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=4"]) == 2
    assert "no checkpoint in" in capsys.readouterr().err


def test_finished_run_keeps_one_checkpoint_or_none(
    tmp_path: Path, finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [path.name for path in (finished_run / "state").glob("server*")] == ["server.safetensors"]
    run_dir = run(tmp_path, comm_round=2, keep_state="none")
    assert list((run_dir / "state").glob("server*")) == []
    rounds = (run_dir / "metrics.jsonl").read_bytes()
    assert main(["run", "--resume", str(run_dir), "--set", "comm_round=4"]) == 2
    assert "keep_state" in capsys.readouterr().err
    assert (run_dir / "metrics.jsonl").read_bytes() == rounds


@pytest.mark.slow
def test_resume_with_changed_data_warns_and_with_foreign_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = digits_file(tmp_path / "digits.npz", permuted=False)
    run_dir = run(tmp_path, dataset="npz", data_file=str(file), comm_round=1, federated_optimizer="FedAvg")
    digits_file(file, permuted=True)
    resume = ["run", "--resume", str(run_dir), "--set", "comm_round=2"]
    # A process of its own, since the log of this one belongs to its first run.
    result = subprocess.run([sys.executable, "-m", "mrtf_fedml.cli", *resume], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"{file} has changed since the run started" in result.stderr
    assert main([*resume, "--set", "comm_round=3", "--set", "model=mlp"]) == 2
    assert "does not fit the model" in capsys.readouterr().err


def test_resume_of_a_locked_run_directory_is_refused(
    tmp_path: Path, finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished_run, run_dir)
    code = "import sys, pathlib; from mrtf_fedml.training.run_directory import DirectoryLock as L; "
    code += "lock = L(pathlib.Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and path.name != "lock"}
    resume = ["run", "--resume", str(run_dir), "--set", "comm_round=4"]
    command = [sys.executable, "-c", code, str(run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert main(resume) == 2
        errors = capsys.readouterr().err
        assert f"another process (process {other.pid} on " in errors
        assert {path: path.read_bytes() for path in before} == before
        other.kill()
    assert main(resume) == 0, "a process that was killed holds nothing"
    assert len(read_metrics(run_dir)) == 4


def test_resume_with_fewer_rounds_than_done_is_refused(finished_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--resume", str(finished_run), "--set", "comm_round=2"]) == 2
    assert "has done 3 rounds already, more than comm_round 2" in capsys.readouterr().err


def test_interrupt_in_the_first_round_reports_that_nothing_was_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stopping.py").write_text(
        "import mrtf_fedml\n\n\n"
        "class Stop(mrtf_fedml.Callback):\n"
        "    def on_round_begin(self, run, clients):\n        raise KeyboardInterrupt\n"
    )
    monkeypatch.chdir(tmp_path)
    config = small_config(run_dir=str(tmp_path / "run"), callbacks=["stopping:Stop"])
    assert main(["run", "--cf", str(write_yaml(tmp_path / "c.yaml", config))]) == 130
    assert "nothing was saved" in capsys.readouterr().err


def test_report_and_resume_work_from_another_working_directory(
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


def test_resumed_ridge_regression_without_a_client_equals_one_that_never_had_it(tmp_path: Path) -> None:
    ridge = {"federated_optimizer": "FedRidge", "model": "linear", "ridge_strength": 1.0, "comm_round": 9}
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    left = run(tmp_path / "with", **ridge)
    never = run(tmp_path / "without", **ridge, ridge_removed_clients=[5])
    assert output_bytes(left) != output_bytes(never)
    assert main(["run", "--resume", str(left), "--set", "ridge_removed_clients=[5]"]) == 0
    assert read_metrics(left)[-1]["clients_added"] == 7
    probabilities = [np.load(folder / "probabilities.npy") for folder in (left, never)]
    np.testing.assert_allclose(*probabilities, atol=1e-5)
