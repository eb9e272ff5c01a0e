"""The audit log: its chain under kills and changes, and the comparison of two parties' logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mrtf_fedml.cli import main
from mrtf_fedml.errors import UserError, WriteError
from mrtf_fedml.fedml_bridge.backends.cross_silo import audit
from mrtf_fedml.fedml_bridge.backends.cross_silo.audit import AuditLog, compare_logs, verify_log


def message(direction: str, peer: int, kind: str, number: int, round_index: int | None = None) -> Any:
    """A record; the number stands for the payload, which is unique."""
    parts = ("w", "b") if kind in ("task", "update") else ()
    payload = f"{kind} {number}".encode()
    return SimpleNamespace(direction=direction, peer=peer, kind=kind, round=round_index, payload=payload, parts=parts)


class Pair:
    """A server and silo 1, whose logs are in two folders."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / "server", folder / "silo"]
        for place in self.folders:
            place.mkdir()
        self.logs = [AuditLog(place, party, "0.1.0") for party, place in enumerate(self.folders)]
        self.number = 0

    def send(self, sender: int, kind: str, arrives: bool = True, fails: bool = False) -> None:
        self.number += 1
        round_index = self.number if kind in ("task", "update") else None
        self.logs[sender].record(message("sent", 1 - sender, kind, self.number, round_index))
        if fails:
            self.logs[sender].record(message("failed", 1 - sender, kind, self.number, round_index))
        if arrives:
            self.logs[1 - sender].record(message("received", sender, kind, self.number, round_index))

    def restart(self, party: int) -> None:
        """As after a kill: the log has no last line of the earlier process."""
        self.logs[party] = AuditLog(self.folders[party], party, "0.1.0")

    def compare(self) -> tuple[list[str], list[str]]:
        logs = [verify_log(place / "audit.jsonl") for place in self.folders]
        assert [log.problems for log in logs] == [[], []]
        return compare_logs(*logs)

    def verify(self) -> int:
        return main(["audit", "verify", *map(str, self.folders)])


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    for _ in range(3):
        made.send(0, "task")
        made.send(0, "heartbeat")
        made.send(1, "update")
    return made


def rewrite(file: Path, keep: list[dict[str, Any]]) -> None:
    """A forged log with these lines and a correct chain."""
    previous, lines = "0" * 64, []
    for fields in keep:
        content = json.dumps({key: value for key, value in fields.items() if key != "hash"})
        previous = audit.hash_line(previous, content)
        lines.append(f'{content[:-1]}, "hash": "{previous}"}}\n')
    file.write_text("".join(lines))


def test_intact_logs_agree_and_line_has_the_message(pair: Pair) -> None:
    pair.logs[0].close()
    assert pair.verify() == 0
    log = verify_log(pair.folders[0] / "audit.jsonl")
    assert log.party == 0
    assert len(log.messages) == 9
    fields = log.messages[0].fields
    assert (fields["kind"], fields["direction"], fields["peer"], fields["bytes"]) == ("task", "sent", 1, len("task 1"))
    assert fields["parts"] == ["w", "b"]


@pytest.mark.parametrize("place", [0, 1, 5, -1])
def test_changed_line_breaks_the_chain_and_is_named(pair: Pair, place: int, capsys: pytest.CaptureFixture[str]) -> None:
    file = pair.folders[0] / "audit.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    lines[place] = lines[place].replace('"time": "20', '"time": "21')
    file.write_text("".join(lines))
    assert pair.verify() == 1
    number = place + 1 if place >= 0 else len(lines)
    assert f"line {number} does not fit its hash" in capsys.readouterr().out


def test_removed_line_breaks_the_chain(pair: Pair) -> None:
    file = pair.folders[1] / "audit.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3] + lines[4:]))
    assert verify_log(file).problems == [
        "line 4 does not fit its hash: it was changed, or lines before it were removed or added"
    ]


def test_forged_chain_without_a_received_task_disagrees_with_the_server(pair: Pair) -> None:
    file = pair.folders[1] / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    rewrite(file, [one for one in lines if one.get("round") != 4 or one["kind"] != "task"])
    assert verify_log(file).problems == []
    assert verify_log(pair.folders[0] / "audit.jsonl").messages[3].fields["round"] == 4
    problems, _ = pair.compare()
    assert len(problems) == 1
    assert "silo 1 has not received the task of round 5" in problems[0]


def test_forged_chain_with_another_payload_disagrees_in_both_directions(pair: Pair) -> None:
    file = pair.folders[1] / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    next(one for one in lines if one["kind"] == "update")["sha256"] = "0" * 64
    rewrite(file, lines)
    problems, _ = pair.compare()
    assert ["the server has received" in sentence for sentence in problems] == [True]


def test_forged_metadata_of_a_message_is_named(pair: Pair) -> None:
    file = pair.folders[1] / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    next(one for one in lines if one["kind"] == "update")["parts"] = ["w"]
    rewrite(file, lines)
    problems, _ = pair.compare()
    assert ["has another parts" in sentence for sentence in problems] == [True]


def test_message_in_flight_when_the_silo_was_killed_is_explained(pair: Pair) -> None:
    pair.send(0, "task", arrives=False)
    pair.restart(1)
    pair.send(1, "status")
    pair.send(0, "task")
    problems, notes = pair.compare()
    assert problems == []
    assert any("was killed before it arrived" in sentence for sentence in notes)


def test_message_in_flight_when_the_server_was_killed_is_explained(pair: Pair) -> None:
    pair.send(0, "task", arrives=False)
    pair.restart(0)
    pair.send(0, "task")
    problems, notes = pair.compare()
    assert problems == []
    assert any("the sender was killed" in sentence for sentence in notes)


def test_last_message_and_undelivered_message_are_explained(pair: Pair) -> None:
    pair.send(0, "task", arrives=False, fails=True)
    pair.send(0, "task")
    pair.send(0, "finish", arrives=False)
    problems, notes = pair.compare()
    assert problems == []
    assert any("could not be delivered" in sentence for sentence in notes)
    assert any("finish" in sentence and "before it arrived" in sentence for sentence in notes)


def test_lost_heartbeats_are_counted_and_no_disagreement(pair: Pair) -> None:
    pair.send(0, "heartbeat", arrives=False)
    pair.send(0, "heartbeat", arrives=False)
    pair.send(0, "heartbeat")
    problems, notes = pair.compare()
    assert problems == []
    assert "2 heartbeat messages of the server did not arrive" in notes


@pytest.mark.parametrize("cut", [1, 30, 150])
def test_line_that_a_kill_has_cut_short_is_named_and_the_chain_continues(pair: Pair, cut: int) -> None:
    file = pair.folders[1] / "audit.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    log = verify_log(file)
    assert log.problems == []
    assert ["is incomplete" in sentence for sentence in log.notes] == [True]
    pair.restart(1)
    log = verify_log(file)
    assert log.problems == []
    assert any("bytes of that line were removed" in sentence for sentence in log.notes)


def test_two_processes_on_one_file_keep_one_chain(pair: Pair) -> None:
    first, second = pair.logs[1], AuditLog(pair.folders[1], 1, "0.1.0")
    for number in range(50, 56):
        (first if number % 2 else second).record(message("sent", 0, "status", number))
    assert verify_log(pair.folders[1] / "audit.jsonl").problems == []


def test_full_disk_stops_the_message_and_keeps_the_chain(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(audit.os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(WriteError, match="No space left"):
            pair.logs[0].record(message("sent", 1, "task", 99, 9))
    pair.send(0, "task")
    problems, _ = pair.compare()
    assert problems == []


def test_logs_of_the_same_party_and_three_logs_are_rejected(pair: Pair, tmp_path: Path) -> None:
    log = verify_log(pair.folders[0] / "audit.jsonl")
    with pytest.raises(UserError, match="both logs"):
        compare_logs(log, log)
    assert main(["audit", "verify", *[str(pair.folders[0])] * 3]) == 2
    assert main(["audit", "verify", str(tmp_path / "none")]) == 2


def test_verifying_imports_neither_fedml_nor_grpc(pair: Pair) -> None:
    code = (
        "import sys; from mrtf_fedml.cli import main; code = main(['audit', 'verify', sys.argv[1]]);"
        "print([name for name in ('fedml', 'grpc') if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(pair.folders[0])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
