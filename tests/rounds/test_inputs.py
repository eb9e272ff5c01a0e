"""The user's files: a stamp per name, and a warning for the one that is not what it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrtf_fedml.rounds.inputs import file_stamps, warn_of_changes
from mrtf_fedml.settings import DataSettings


def test_the_file_that_has_changed_is_named_and_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, mine = tmp_path / "images", tmp_path / "mine-0.npz"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"one")
    mine.write_bytes(b"two")
    data = DataSettings(data_file=str(folder), own_data_file=str(tmp_path / "mine-{rank}.npz"))
    before = file_stamps(data)
    warn_of_changes(before, file_stamps(data))
    assert caplog.text == ""
    os.utime(mine, ns=(1, 1))
    warn_of_changes(before, file_stamps(data))
    assert "mine-{rank}.npz has changed" in caplog.text
    assert "images has changed" not in caplog.text
    (folder / "b.png").write_bytes(b"three")
    warn_of_changes(before, file_stamps(data))
    assert "images has changed" in caplog.text
    # Nothing is known of what a run began with before stamps were kept.
    caplog.clear()
    warn_of_changes({}, file_stamps(data))
    assert caplog.text == ""
