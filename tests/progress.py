"""A pytest plugin for launch/test.sh: one line for each test file that starts, and one for each failure.

With several workers pytest prints dots alone, which do not show what runs.
"""

from __future__ import annotations

import time

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FileProgress(config))


class FileProgress:
    """Prints `[ 12%]   48 s  tests/training/test_loop.py`; registered in the controlling process only."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begin = time.monotonic()
        self._files: set[str] = set()
        self._done: set[str] = set()
        self._total = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if file not in self._files:
            self._files.add(file)
            self._write(file)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._done.add(report.nodeid)
        if report.failed:
            self._write(f"FAILED {report.nodeid} ({report.when})")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letter; the categories are pytest's own, so that its summary is complete."""
        if self._config.get_verbosity() > 0:
            return None
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "PASSED")
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        return None

    def _write(self, line: str) -> None:
        share = 100 * len(self._done) // max(self._total, 1)
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(f"[{share:3d}%] {time.monotonic() - self._begin:4.0f} s  {line}")
