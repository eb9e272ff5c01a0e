"""`mrtf run --watch`: the page is served while the run lasts."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mrtf_fedml
from mrtf_fedml.cli import main
from tests.conftest import small_config, write_yaml

#: Called by `AtEachRound`.
calls: list[Callable[[], None]] = []


class AtEachRound(mrtf_fedml.Callback):
    """Calls the test when a round begins."""

    def on_round_begin(self, run: Any, clients: Any) -> None:
        for call in calls:
            call()


def test_page_shows_every_round_while_the_run_lasts_and_is_closed_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[str] = []
    address = ""

    def fetch() -> None:
        nonlocal address
        address = address or re.findall(r"http://127\.0\.0\.1:\d+/", capsys.readouterr().err)[0]
        pages.append(urllib.request.urlopen(address, timeout=60).read().decode())

    monkeypatch.setattr("mrtf_fedml.watch.server._LAST_FETCH_SECONDS", 0.0)
    # Any free port: another process of this machine may use the default port as soon as it is closed.
    monkeypatch.setattr("mrtf_fedml.watch.server.DEFAULT_PORT", 0)
    monkeypatch.setattr(f"{__name__}.calls", [fetch])
    config = small_config(run_dir=str(tmp_path / "run"), callbacks=[f"{__name__}:AtEachRound"])
    assert main(["run", "--cf", str(write_yaml(tmp_path / "config.yaml", config)), "--watch"]) == 0
    for number, page in enumerate(pages, start=1):
        assert f"Round {number} of 2: the clients train." in page
    assert len(pages) == 2
    with pytest.raises(OSError, match=r"refused|reset"):
        urllib.request.urlopen(address, timeout=60)
