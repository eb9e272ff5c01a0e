"""Atomic writes: a failed write leaves the old file and no temporary one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrtf_fedml.errors import WriteError
from mrtf_fedml.training.files import append_line, atomic_write


def refuse_sync(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_atomic_write_on_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "summary.json"
    atomic_write(file, b"old")
    monkeypatch.setattr(os, "fsync", refuse_sync)
    with pytest.raises(WriteError, match=r"summary\.json.*No space left"):
        atomic_write(file, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert file.read_bytes() == b"old"


def test_append_line_on_a_full_disk_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "metrics.jsonl"
    append_line(file, "one")
    monkeypatch.setattr(os, "fsync", refuse_sync)
    with pytest.raises(WriteError, match=r"metrics\.jsonl"):
        append_line(file, "two")
    assert file.read_text() == "one\n"
