"""Files of a run's folder that somebody, or a failing disk, has changed: a sentence each, and never a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mrtf_fedml.cli import main
from tests.conftest import read_metrics, small_config, write_yaml

#: Contents that replace a file of a run.
JUNK = {
    "nothing": b"",
    "zeros": b"\0" * 64,
    "a list": b"[]",
    "a number": b"7" * 6000,
    "a text": b'"x"',
    "not UTF-8": b"\xff\xfe\xfd",
    "deep": b"[" * 50_000,
    "itself": b"a: &a [*a]\n",
    "other keys": b"data_args: 5\n1: 2\n",
    "another line": b'{"round": "first", "acc": "good"}\n',
    "half a line": b'{"round": 0, "acc"',
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    config = small_config(run_dir=str(folder / "run"), preset="tuned", model="mlp", hidden_size=16)
    assert main(["run", "--cf", str(write_yaml(folder / "c.yaml", config))]) == 0
    return folder / "run"


def copy_with_change(finished_run: Path, place: Path, name: str, content: bytes) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(finished_run, place / "run")
    (place / "run" / name).write_bytes(content)
    return place / "run"


def run_mrtf(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code and the output of `mrtf`; an exception would end the test."""
    code = main(list(words))
    captured = capsys.readouterr()
    assert len(captured.err) < 3000
    return code, captured.out + captured.err


def test_resume_with_invalid_config_yaml_exits_with_2(
    finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in JUNK.values():
        run_dir = copy_with_change(finished_run, tmp_path / "w", "config.yaml", content)
        for words in (["run", "--resume"], ["report"]):
            code, message = run_mrtf(capsys, *words, str(run_dir))
            assert (code, "config.yaml" in message) == (2, True), message
        assert run_mrtf(capsys, "runs", str(run_dir.parent))[0] == 0


def test_report_with_damaged_files_exits_without_traceback(
    finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("summary.json", "probabilities.npy", "predictions.csv", "split.json", "metrics.jsonl", "agreement.npy")
    for name in names:
        for junk in ("nothing", "a list", "not UTF-8"):
            run_dir = copy_with_change(finished_run, tmp_path / "w", name, JUNK[junk])
            assert run_mrtf(capsys, "report", str(run_dir))[0] in (0, 2)
            assert run_mrtf(capsys, "runs", str(run_dir.parent))[0] == 0


def test_resume_with_damaged_optional_files_continues(
    finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("evaluation.json", "summary.json", "split.json", "probabilities.npy", "agreement.npy"):
        run_dir = copy_with_change(finished_run, tmp_path / "w", name, JUNK["not UTF-8"])
        assert run_mrtf(capsys, "run", "--resume", str(run_dir), "--set", "comm_round=3")[0] == 0
    for name, content in (("predictions.csv", b"\x93"), ("predictions.csv", b"a\n1,2\n")):
        run_dir = copy_with_change(finished_run, tmp_path / "w", name, content)
        assert run_mrtf(capsys, "runs", "--compare", str(run_dir), str(finished_run))[0] == 2
    run_dir = copy_with_change(finished_run, tmp_path / "w", "summary.json", b'{"accuracy": 1%s}' % (b"0" * 400))
    assert "its files cannot be read" in run_mrtf(capsys, "runs", str(run_dir.parent))[1]
    run_dir = copy_with_change(finished_run, tmp_path / "w", "other", b"")
    (run_dir / "split.json").unlink()
    (run_dir / "split.json").mkdir()
    assert "is damaged" in run_mrtf(capsys, "report", str(run_dir))[1]


def test_resume_with_unreadable_metrics_lines_continues(
    finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (finished_run / "metrics.jsonl").read_bytes()
    for content in (b'{"round": "first"}\n', b'{"round": 0}\n', b"\xff\n" + whole, whole[: len(whole) // 2]):
        run_dir = copy_with_change(finished_run, tmp_path / "w", "metrics.jsonl", content)
        assert run_mrtf(capsys, "run", "--resume", str(run_dir), "--set", "comm_round=3")[0] == 0
        assert read_metrics(run_dir)[-1]["round"] == 2


def test_resume_with_other_server_set_is_refused_and_with_fewer_clients_continues(
    finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = copy_with_change(finished_run, tmp_path / "w", "unknown", b"")
    resume = ["run", "--resume", str(run_dir), "--set", "comm_round=3"]
    code, message = run_mrtf(capsys, *resume, "--set", "server_samples=50")
    assert (code, "has 50 samples but had 599" in message) == (2, True), message
    assert run_mrtf(capsys, *resume, "--set", "client_num_in_total=3")[0] == 0


def test_error_message_shortens_long_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_yaml(tmp_path / "c.yaml", small_config())
    for change in (
        f"epochs={'x' * 30_000}",
        f"{'x' * 30_000}=1",
        "epochs=" + "[" * 3000,
        "epochs=&a [*a]",
        "epochs=" + "9" * 6000,
        "random_seed=0x" + "f" * 5000,
        "train_args=&a {a: *a}",
    ):
        assert run_mrtf(capsys, "run", "--cf", str(file), "--set", change)[0] == 2
