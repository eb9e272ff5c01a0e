"""What `mrtf watch` reads from a folder that grows, is replaced, or whose process has died."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml import phases
from mrtf_fedml.callbacks.status import FINISHED, RUNNING, STOPPED, StatusFile
from mrtf_fedml.errors import UserError
from mrtf_fedml.watch.live_run import LiveRun
from mrtf_fedml.watch.page import live_page
from tests.report.runs import line


def append(folder: Path, *lines: dict[str, Any]) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in lines)


def rounds(run: LiveRun) -> list[int]:
    run.read()
    return [one["round"] for one in run.metrics]


def read_status(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "status.json").read_text())


def test_folder_without_status_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no status"):
        LiveRun(tmp_path)


def test_appended_lines_are_read_and_an_incomplete_line_waits(tmp_path: Path) -> None:
    StatusFile(tmp_path, rounds=9).close()
    run = LiveRun(tmp_path)
    append(tmp_path, line(0))
    assert rounds(run) == [0]
    text = json.dumps(line(1)) + "\n"
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(text[:20])
        file.flush()
        assert rounds(run) == [0]
        file.write(text[20:] + "not json\n")
    assert rounds(run) == [0, 1]


def test_replaced_metrics_are_read_from_the_start(tmp_path: Path) -> None:
    StatusFile(tmp_path, rounds=9).close()
    append(tmp_path, line(0), line(1), line(2))
    run = LiveRun(tmp_path)
    (tmp_path / "new").write_text(json.dumps(line(0, acc=0.25)) + "\n")
    (tmp_path / "new").replace(tmp_path / "metrics.jsonl")
    assert rounds(run) == [0]
    assert run.metrics[0]["acc"] == 0.25


def test_repeated_round_of_a_silo_replaces_that_round_and_later_ones(tmp_path: Path) -> None:
    StatusFile(tmp_path, rounds=9).close()
    append(tmp_path, line(0), line(1), line(2), line(1, train_loss=7.0))
    run = LiveRun(tmp_path)
    assert rounds(run) == [0, 1]
    assert run.metrics[1]["train_loss"] == 7.0


def test_state_is_stopped_when_process_has_ended_without_results(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    StatusFile(tmp_path, process={"id": process.pid, "started": time.time(), "host": os.uname().nodename})
    run = LiveRun(tmp_path)
    assert run.state == STOPPED
    assert "without writing the results" in live_page(run)


def test_state_of_a_process_on_another_host_is_taken_from_the_file(tmp_path: Path) -> None:
    StatusFile(tmp_path, process={"id": 1, "started": 0.0, "host": "elsewhere"})
    assert LiveRun(tmp_path).state == RUNNING


def test_status_records_phases_warnings_and_end(tmp_path: Path) -> None:
    log = logging.getLogger("mrtf_fedml.training.round")
    status = StatusFile(tmp_path, rounds=9)
    with status:
        status.begin_round(3, [5, 1])
        status.begin_round(3, [2])
        with phases.phase(phases.DISTILLING):
            assert read_status(tmp_path)["phase"] == phases.DISTILLING
        log.warning("client %d is excluded", 5)
        status.update()
    content = read_status(tmp_path)
    assert content["selected"] == [1, 2, 5]
    assert content["round"] == 3
    assert [one["text"] for one in content["warnings"]] == ["client 5 is excluded"]
    assert content["state"] == FINISHED
    with phases.phase(phases.TARGETS):
        log.warning("after the end")
    assert read_status(tmp_path) == content


def test_unchanged_status_is_not_written_again(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, phase="a")
    before = os.stat(tmp_path / "status.json").st_ino
    status.update(phase="a")
    assert os.stat(tmp_path / "status.json").st_ino == before
    status.update(phase="b")
    assert os.stat(tmp_path / "status.json").st_ino != before
    status.close()


def test_error_ends_the_status_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), StatusFile(tmp_path):
        raise RuntimeError("too few clients")
    run = LiveRun(tmp_path)
    assert (run.state, run.reason) == (STOPPED, "too few clients")


def test_time_left_is_the_median_round_times_the_rounds_left(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, rounds=10)
    append(
        tmp_path,
        *(line(number, client_seconds=seconds, server_seconds=1.0) for number, seconds in ((0, 9), (1, 3), (2, 3))),
    )
    assert LiveRun(tmp_path).seconds_left() == 7 * 4.0
    status.begin_round(3, [0])
    began = read_status(tmp_path)["round_started"]
    assert LiveRun(tmp_path).seconds_left(now=began + 1.0) == pytest.approx(27.0)
    assert LiveRun(tmp_path).seconds_left(now=began + 60.0) == pytest.approx(24.0)
    status.close()
    assert LiveRun(tmp_path).seconds_left() is None


def test_page_lists_lost_and_excluded_clients_and_escapes_their_text(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, role="server", rounds=5, clients=3, connected=[0, 2])
    append(tmp_path, line(0, clients=[0, 1, 2], excluded_clients={"1": "<b>late</b>"}))
    status.begin_round(1, [0, 1, 2])
    status.update(received=[0])
    page = live_page(LiveRun(tmp_path))
    assert "&lt;b&gt;late&lt;/b&gt;" in page
    assert "<b>late</b>" not in page
    rows = [row.split("</td>") for row in page.partition("Clients</h2>")[2].split("<tr>")[2:]]
    cells = [[cell.rpartition(">")[2] for cell in row[:-1]] for row in rows]
    assert cells == [
        ["0", "connected", "1", "0", "update received", ""],
        ["1", "not connected", "0", "1", "lost", "round 1: &lt;b&gt;late&lt;/b&gt;"],
        ["2", "connected", "1", "0", "trains", ""],
    ]
    assert "1 of 3 updates have arrived" in page
    status.close()
