"""The privacy account: a round is charged before its tasks are sent, and a crash never lowers the account."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mrtf_fedml.algorithms import ServerState
from mrtf_fedml.callbacks.privacy import PrivacyAccount
from mrtf_fedml.privacy.budget import PrivacyBudget
from mrtf_fedml.training.run_directory import RunDirectory
from tests.conftest import small_settings
from tests.privacy.test_budget import gaussian_epsilon


def start_account(folder: Path, rounds_done: int, **changes: Any) -> tuple[PrivacyAccount, Any]:
    """An account that continues the run in the folder, and that run."""
    settings = small_settings(**{"clip": 0.5, "sigma": 1.0, **changes})
    run = SimpleNamespace(settings=settings, directory=RunDirectory(folder), state=ServerState(rounds_done, {}, {}))
    account = PrivacyAccount(PrivacyBudget(settings))
    (folder / "state").mkdir(exist_ok=True)
    account.on_start(run)  # type: ignore[arg-type]
    return account, run


def server_epsilon(account: PrivacyAccount) -> float | str | None:
    return account.budget.epsilons()["epsilon_server"]


@pytest.mark.parametrize(("training_type", "copies"), [("cross_silo", 2), ("simulation", 1)])
def test_repeated_round_is_charged_again_unless_it_repeats_the_noise(
    tmp_path: Path, training_type: str, copies: int
) -> None:
    account, run = start_account(tmp_path, 0, training_type=training_type)
    account.on_round_begin(run, [0, 1])
    again, run = start_account(tmp_path, 0, training_type=training_type)
    again.on_round_begin(run, [0, 1])
    assert server_epsilon(again) == pytest.approx(gaussian_epsilon(2.0, copies, 1e-5), rel=1e-6)
    later, _ = start_account(tmp_path, 1, training_type=training_type)
    assert server_epsilon(later) == server_epsilon(again)


def test_incomplete_last_line_of_the_ledger_is_not_charged(tmp_path: Path) -> None:
    account, run = start_account(tmp_path, 0, training_type="cross_silo")
    account.on_round_begin(run, [0])
    file = tmp_path / "state" / "privacy.jsonl"
    line = file.read_text()
    file.write_text(line + line[:20])
    again, run = start_account(tmp_path, 1, training_type="cross_silo")
    run.state = ServerState(1, {}, {})
    again.on_round_begin(run, [0])
    assert server_epsilon(again) == pytest.approx(gaussian_epsilon(2.0, 2, 1e-5), rel=1e-6)
    assert server_epsilon(start_account(tmp_path, 2)[0]) == server_epsilon(again)


def test_lost_lines_of_the_ledger_make_epsilon_unbounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "state" / "privacy.jsonl"
    for damage in ("", "{}\n", "\0\0\0\n", '{"round": "x"}\n'):
        file.unlink(missing_ok=True)
        account, run = start_account(tmp_path, 0)
        account.on_round_begin(run, [0])
        file.write_text(damage)
        assert server_epsilon(start_account(tmp_path, 1)[0]) == "none"
    assert "1 of the 1 earlier rounds are not in the ledger" in caplog.text


def test_metrics_and_ledger_lines_are_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real_fsync = [], os.fsync

    def fsync(number: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{number}")).name)
        real_fsync(number)

    monkeypatch.setattr(os, "fsync", fsync)
    RunDirectory(tmp_path).append_metrics({"round": 0})
    account, run = start_account(tmp_path, 0)
    account.on_round_begin(run, [0])
    assert synced == ["metrics.jsonl", tmp_path.name, "privacy.jsonl", "state"]
