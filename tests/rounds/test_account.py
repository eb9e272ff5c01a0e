"""The account of a run's privacy: charged before a round is asked for, and never smaller for a crash."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mrtf_fedml.algorithms import ServerState
from mrtf_fedml.privacy.budget import PrivacyBudget
from mrtf_fedml.rounds.account import PrivacyAccount
from mrtf_fedml.rounds.store import RunStore
from tests.conftest import small_settings
from tests.privacy.test_budget import gaussian_epsilon


def started(folder: Path, rounds_done: int, **changes: Any) -> tuple[PrivacyAccount, Any]:
    """An account that goes on with the run in the folder, and the run as it sees it."""
    settings = small_settings(**{"clip": 0.5, "sigma": 1.0, **changes})
    run = SimpleNamespace(settings=settings, store=RunStore(folder), state=ServerState(rounds_done, {}, {}))
    account = PrivacyAccount(PrivacyBudget(settings))
    (folder / "state").mkdir(exist_ok=True)
    account.on_start(run)  # type: ignore[arg-type]
    return account, run


def server_epsilon(account: PrivacyAccount) -> float | str | None:
    return account.budget.spent()["epsilon_server"]


@pytest.mark.parametrize(("training_type", "copies"), [("cross_silo", 2), ("simulation", 1)])
def test_a_round_that_a_crash_cut_off_is_charged_again_where_it_shows_another_copy(
    tmp_path: Path, training_type: str, copies: int
) -> None:
    account, run = started(tmp_path, 0, training_type=training_type)
    account.on_asking(run, [0, 1])
    again, run = started(tmp_path, 0, training_type=training_type)
    again.on_asking(run, [0, 1])
    assert server_epsilon(again) == pytest.approx(gaussian_epsilon(2.0, copies, 1e-5), rel=1e-6)
    later, _ = started(tmp_path, 1, training_type=training_type)
    assert server_epsilon(later) == server_epsilon(again)


def test_a_line_that_was_cut_short_was_never_handed_out(tmp_path: Path) -> None:
    account, run = started(tmp_path, 0, training_type="cross_silo")
    account.on_asking(run, [0])
    file = tmp_path / "state" / "privacy.jsonl"
    line = file.read_text()
    file.write_text(line + line[:20])
    again, run = started(tmp_path, 1, training_type="cross_silo")
    run.state = ServerState(1, {}, {})
    again.on_asking(run, [0])
    assert server_epsilon(again) == pytest.approx(gaussian_epsilon(2.0, 2, 1e-5), rel=1e-6)
    assert server_epsilon(started(tmp_path, 2)[0]) == server_epsilon(again)


def test_what_is_lost_of_the_account_is_not_claimed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "state" / "privacy.jsonl"
    for damage in ("", "{}\n", "\0\0\0\n", '{"round": "x"}\n'):
        file.unlink(missing_ok=True)
        account, run = started(tmp_path, 0)
        account.on_asking(run, [0])
        file.write_text(damage)
        assert server_epsilon(started(tmp_path, 1)[0]) == "none"
    assert "1 of the 1 rounds before are not in the account" in caplog.text


def test_the_line_of_a_round_is_on_the_disk_when_its_state_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, really = [], os.fsync

    def fsync(number: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{number}")).name)
        really(number)

    monkeypatch.setattr(os, "fsync", fsync)
    RunStore(tmp_path).append_metrics({"round": 0})
    account, run = started(tmp_path, 0)
    account.on_asking(run, [0])
    assert synced == ["metrics.jsonl", tmp_path.name, "privacy.jsonl", "state"]
