"""The live page in a real browser, while a run grows and while a silo dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrtf_fedml.callbacks.status import StatusFile
from mrtf_fedml.watch.server import WatchServer
from tests.backends.cross_silo.federation import Federation, wait_until
from tests.report.browser import Tab, open_browser
from tests.report.runs import line
from tests.report.test_browser import COVERED, GROUNDS, HIDDEN, LETTERS

from .test_live_run import append

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with open_browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def check_page(tab: Tab, url: str) -> None:
    """At 390 and 1280 pixels, light and dark."""
    for width in (390, 1280):
        for dark in (False, True):
            tab.open(url, width, dark)
            seen = f"{width} pixels, {'dark' if dark else 'light'}"
            assert tab.value("document.scrollingElement.scrollWidth <= innerWidth"), f"wider than the screen: {seen}"
            assert tab.value("document.querySelectorAll('svg').length") > 0
            assert tab.value(HIDDEN) == 0, seen
            assert tab.value(LETTERS) >= 10, seen
            assert tab.value(COVERED) == [], seen
            grounds = tab.value(GROUNDS)
            assert max(grounds) < 60 if dark else min(grounds) > 200, seen
            assert tab.messages == [], seen
            assert set(tab.requests) == {url, url + "style.css", url + "watch.js"}, seen


def wait_for(tab: Tab, expression: str, expected: Any = True, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while tab.value(expression) != expected:
        assert time.monotonic() < deadline, f"{expression} is {tab.value(expression)!r}, not {expected!r}"
        time.sleep(0.2)


def test_page_of_a_growing_run_renders_and_updates_itself(tab: Tab, tmp_path: Path) -> None:
    status = StatusFile(tmp_path, role="server", algorithm="MrTF", dataset="digits", rounds=5, clients=3, connected=[0])
    with WatchServer(tmp_path, 0) as server:
        server.start()
        tab.open(server.url, 1280, False)
        assert tab.value("document.querySelectorAll('svg').length") == 0
        for number in range(3):
            append(tmp_path, line(number, clients=[0, 1, 2], excluded_clients={"2": "it was lost before it replied"}))
        status.begin_round(3, [0, 1, 2])
        status.update(connected=[0, 1], received=[1])
        wait_for(tab, "document.querySelector('h1').innerText.includes('Round 4 of 5')")
        assert tab.value("document.querySelectorAll('svg').length") >= 4
        assert "not connected" in tab.value("document.getElementById('clients').innerText")
        assert tab.value("document.getElementById('lost').hidden")
        check_page(tab, server.url)
        status.close("interrupted")
        wait_for(tab, "document.title.startsWith('Stopped after 3 rounds: interrupted')")
        server.shutdown()
    # The browser reports the refused connection on its console; the page says it in words.
    wait_for(tab, "document.getElementById('lost').hidden", False)


@pytest.mark.slow
def test_page_shows_a_silo_that_dies_and_comes_back(tab: Tab, tmp_path: Path) -> None:
    with Federation(tmp_path, 3, comm_round=100_000) as federation:
        _, _, _, third = federation.start_all()
        wait_until(lambda: federation.rounds_done() >= 1, "a round")
        with WatchServer(federation.run_dir, 0) as server, WatchServer(tmp_path / "run-silo1", 0) as of_silo:
            server.start()
            of_silo.start()
            check_page(tab, server.url)
            third.kill()
            state = "document.querySelectorAll('#clients tr')[3].children[1].innerText"
            wait_for(tab, state, "not connected", 90.0)
            check_page(tab, server.url)
            federation.start(3)
            wait_for(tab, state, "connected", 90.0)
            check_page(tab, of_silo.url)
            assert "silo 1" in tab.value("document.querySelector('.eyebrow').innerText")
            assert not tab.value("document.getElementById('clients').innerText"), "a silo knows no other silo"
            # Closing their sockets first would leave their threads busy.
            server.shutdown()
            of_silo.shutdown()
