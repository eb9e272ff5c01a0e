"""audit.jsonl: one line per message that left or reached a silo or a server, chained by hashes; and how to verify it.

Each line ends with a hash of the line and of the hash before it, so that no line can be changed, removed or inserted
without changing every later hash. A process begins with a line of the kind `start` and ends with one of the kind `end`,
which is missing if it was killed. This module imports no FedML: verifying a log needs none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import UserError
from ....training.files import report_write_errors

if TYPE_CHECKING:
    from .transports.base import MessageRecord

AUDIT = "audit.jsonl"

START, END = "start", "end"
SENT, RECEIVED, FAILED = "sent", "received", "failed"
#: Messages that are sent without waiting for their arrival, and are repeated until one arrives.
_UNCONFIRMED = {"heartbeat", "status"}
#: The hash before the first line.
_NO_HASH = "0" * 64
_HASH_KEY = ', "hash": "'
_SUFFIX_BYTES = len(_HASH_KEY) + 64 + len('"}')
#: Fields of a message that both parties log alike.
_COMMON_FIELDS = ("kind", "round", "bytes", "parts")
#: Bytes at the end of a file that surely have its last line.
_TAIL_BYTES = 2**24


class AuditLog:
    """Appends to audit.jsonl. A restarted process continues the chain.

    A line is written before its message is sent, so that nothing leaves without a line. If the disk is full, the
    message is not sent.

    Args:
        folder: of the party.
        party: its id, 0 for the server.
        version: of this package.
    """

    def __init__(self, folder: Path, party: int, version: str) -> None:
        self._path = folder / AUDIT
        self._lock = threading.Lock()
        self._hash, self._size = _NO_HASH, 0
        self._is_closed = False
        with report_write_errors(self._path):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        removed = self._remove_incomplete_line()
        fields = {"kind": START, "party": party, "version": version}
        self._append(fields | ({"removed_bytes": removed} if removed else {}), sync=True)

    def record(self, message: MessageRecord) -> None:
        """Append a line for a message; lines of messages with tensors are synced to disk."""
        fields = {
            "kind": message.kind,
            "direction": message.direction,
            "peer": message.peer,
            "round": message.round,
            "bytes": len(message.payload),
            "sha256": hashlib.sha256(message.payload).hexdigest(),
            "parts": list(message.parts),
        }
        self._append(fields, sync=bool(message.parts))

    def close(self, reason: str = "") -> None:
        """Append the last line: this process ends for this reason, which is empty if the run is over."""
        # The reason may be a full disk.
        with suppress(OSError, ValueError):
            self._append({"kind": END, "reason": reason}, sync=True)
        with self._lock:
            os.close(self._file)
            self._is_closed = True

    def _append(self, fields: Mapping[str, Any], sync: bool) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._lock, report_write_errors(self._path):
            if self._is_closed:
                # A background thread still has a message, which the closed transport does not send.
                return
            # A silo may be started again while its earlier process hangs; then two processes append to one file.
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                if os.fstat(self._file).st_size != self._size:
                    self._hash, self._size = self._read_end()
                content = json.dumps({"time": now, **fields})
                line_hash = hash_line(self._hash, content)
                line = f'{content[:-1]}{_HASH_KEY}{line_hash}"}}\n'.encode()
                try:
                    written = os.write(self._file, line)
                    if written < len(line):
                        raise OSError("there is no room for the whole line")
                    if sync:
                        os.fsync(self._file)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(self._file, self._size)
                    raise
                self._hash, self._size = line_hash, self._size + len(line)
            finally:
                with suppress(OSError):
                    fcntl.flock(self._file, fcntl.LOCK_UN)

    def _read_end(self) -> tuple[str, int]:
        """The hash of the last line, and the size of the file."""
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        if not tail:
            return _NO_HASH, 0
        last = tail[:-1].rpartition(b"\n")[2].decode(errors="replace")
        if not last.endswith('"}') or last[-_SUFFIX_BYTES : -_SUFFIX_BYTES + len(_HASH_KEY)] != _HASH_KEY:
            raise UserError(f"the last line of {str(self._path)!r} is damaged; move the file away and keep it")
        return last[-66:-2], size

    def _remove_incomplete_line(self) -> int:
        """Remove the line that a killed process has not finished; its number of bytes."""
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        incomplete = len(tail) - (tail.rfind(b"\n") + 1)
        if incomplete:
            with report_write_errors(self._path):
                os.ftruncate(self._file, size - incomplete)
        return incomplete


def hash_line(previous: str, content: str) -> str:
    """The hash of a line, given the hash of the line before it."""
    return hashlib.sha256((previous + content).encode()).hexdigest()


@dataclass(frozen=True)
class Entry:
    """One message in a log.

    Attributes:
        line: its number in the file, from 1.
        process: the number of the process that has written it, from 0.
        fields: of the line.
    """

    line: int
    process: int
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        fields = self.fields
        of_round = "" if fields.get("round") is None else f" of round {fields['round'] + 1}"
        return f"{fields.get('kind')}{of_round} at {fields.get('time')} (line {self.line})"


@dataclass
class VerifiedLog:
    """A log, and what is wrong with its chain.

    Attributes:
        file: the log.
        party: the id of the party that has written it; None if no line says so.
        messages: the lines of messages.
        head: the hash of the last line.
        problems: why the log cannot be trusted; empty if the chain is intact.
        notes: what a reader should know, such as kills.
    """

    file: Path
    party: int | None = None
    messages: list[Entry] = field(default_factory=list)
    head: str = _NO_HASH
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The party's name."""
        return party_label(self.party)


def party_label(party: int | None) -> str:
    """A party's name by its id.

    >>> party_label(0), party_label(2)
    ('the server', 'silo 2')
    """
    return "an unknown party" if party is None else f"silo {party}" if party else "the server"


def verify_log(file: Path) -> VerifiedLog:
    """Check every hash of a log."""
    log = VerifiedLog(file)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UserError(f"{str(file)!r} cannot be read ({error.strerror}); name an audit.jsonl") from None
    *lines, rest = raw.split(b"\n")
    process, is_open = -1, False
    for number, line in enumerate(lines, start=1):
        fields, content, line_hash = _parse_line(line)
        if fields is None:
            log.problems.append(f"line {number} is not a line of an audit log")
            continue
        if line_hash != hash_line(log.head, content):
            log.problems.append(
                f"line {number} does not fit its hash: it was changed, or lines before it were removed or added"
            )
        log.head = line_hash
        if fields.get("kind") == START:
            if is_open:
                log.notes.append(f"line {number}: the process before was killed, or is still running")
            if fields.get("removed_bytes"):
                log.notes.append(
                    f"line {number}: the process before was killed while it wrote a line; {fields['removed_bytes']} "
                    "bytes of that line were removed"
                )
            process, is_open = process + 1, True
            if log.party not in (None, fields.get("party")):
                log.problems.append(f"line {number} is of {party_label(fields.get('party'))}, not of {log.name}")
            log.party = fields.get("party") if log.party is None else log.party
        elif fields.get("kind") == END:
            is_open = False
        else:
            log.messages.append(Entry(number, process, fields))
    if not lines:
        log.problems.append("there is no complete line")
    if rest:
        log.notes.append(
            f"line {len(lines) + 1} is incomplete ({len(rest)} bytes): the process was killed while it wrote it"
        )
    return log


def compare_logs(one: VerifiedLog, other: VerifiedLog) -> tuple[list[str], list[str]]:
    """What two parties' logs disagree on, and what only one of them has for a known reason."""
    if one.party is None or other.party is None:
        return ["a log does not name its party"], []
    if one.party == other.party:
        raise UserError(f"both logs are of {one.name}; give the logs of two parties")
    problems: list[str] = []
    notes: list[str] = []
    for sender, receiver in ((one, other), (other, one)):
        found, known = _compare_direction(sender, receiver)
        problems += found
        notes += known
    return problems, notes


def _compare_direction(sender: VerifiedLog, receiver: VerifiedLog) -> tuple[list[str], list[str]]:
    sent = _select(sender, SENT, receiver.party)
    received = {entry.fields["sha256"]: entry for entry in _select(receiver, RECEIVED, sender.party)}
    failed = {entry.fields["sha256"] for entry in _select(sender, FAILED, receiver.party)}
    problems, notes = [], []
    both = 0
    for entry in sent:
        arrived = received.get(entry.fields["sha256"])
        if arrived is not None:
            both += 1
            differing = [key for key in _COMMON_FIELDS if entry.fields.get(key) != arrived.fields.get(key)]
            if differing:
                problems.append(f"{entry} of {sender.name}: {receiver.name} has another {' and '.join(differing)}")
    known = {entry.fields["sha256"] for entry in sent}
    problems += [
        f"{receiver.name} has received a {entry} that {sender.name} has not sent"
        for digest, entry in received.items()
        if digest not in known
    ]
    lost = Counter(
        str(entry.fields["kind"])
        for entry in sent
        if entry.fields["kind"] in _UNCONFIRMED and entry.fields["sha256"] not in received
    )
    confirmed = [entry for entry in sent if entry.fields["kind"] not in _UNCONFIRMED]
    for entry, reason in _explain_missing(confirmed, received, failed, receiver.name):
        sentence = f"{receiver.name} has not received the {entry} of {sender.name}"
        if reason is None:
            problems.append(sentence)
        else:
            notes.append(f"{sentence}: {reason}")
    notes += [f"{count} {kind} messages of {sender.name} did not arrive" for kind, count in lost.items()]
    notes.append(f"{both} messages from {sender.name} to {receiver.name} are in both logs")
    return problems, notes


def _select(log: VerifiedLog, direction: str, peer: int | None) -> list[Entry]:
    return [
        entry
        for entry in log.messages
        if entry.fields.get("direction") == direction and entry.fields.get("peer") == peer
    ]


def _explain_missing(
    sent: Sequence[Entry], received: Mapping[str, Entry], failed: set[str], receiver: str
) -> Iterator[tuple[Entry, str | None]]:
    """The sent messages that did not arrive, each with the reason; None where there is none."""
    arrivals = [received.get(entry.fields["sha256"]) for entry in sent]
    for index, entry in enumerate(sent):
        if arrivals[index] is not None:
            continue
        before = next((one for one in reversed(arrivals[:index]) if one is not None), None)
        after = next((one for one in arrivals[index + 1 :] if one is not None), None)
        if entry.fields["sha256"] in failed:
            yield entry, "the sender has noted that it could not be delivered"
        elif after is None:
            yield entry, f"{receiver} ended, or its log was copied, before it arrived"
        elif before is None or before.process != after.process:
            yield entry, f"{receiver} was not running, or was killed before it arrived"
        elif index + 1 < len(sent) and sent[index + 1].process != entry.process:
            yield entry, "the sender was killed before it had left"
        else:
            yield entry, None


def _parse_line(line: bytes) -> tuple[dict[str, Any] | None, str, str]:
    """The fields of a line, the content that its hash covers, and the hash; None for a line of another form."""
    text = line.decode(errors="replace")
    content, suffix = text[:-_SUFFIX_BYTES] + "}", text[-_SUFFIX_BYTES:]
    if not suffix.startswith(_HASH_KEY):
        return None, "", ""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None, "", ""
    is_message = isinstance(fields, dict) and (fields.get("kind") in (START, END) or _is_message(fields))
    return (fields if is_message else None), content, suffix[len(_HASH_KEY) : -2]


def _is_message(fields: Mapping[str, Any]) -> bool:
    return (
        fields.get("direction") in (SENT, RECEIVED, FAILED)
        and isinstance(fields.get("kind"), str)
        and isinstance(fields.get("sha256"), str)
        and isinstance(fields.get("round"), int | None)
    )
