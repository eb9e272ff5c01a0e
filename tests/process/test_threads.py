"""The number of PyTorch threads, and how they wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mrtf_fedml.process.threads import limit_thread_spinning, set_threads


def test_set_threads_prefers_environment_then_setting_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert set_threads(3, default=2) == torch.get_num_threads() == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert set_threads(3, default=2) == torch.get_num_threads() == 3
        assert set_threads(None, default=2) == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_limit_thread_spinning_keeps_user_variables_and_runs_before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    limit_thread_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("KMP_BLOCKTIME", "200")
    limit_thread_spinning()
    assert int(os.environ["GOMP_SPINCOUNT"]) > 0
    assert os.environ["KMP_BLOCKTIME"] == "200"
    # The command line calls it before PyTorch is loaded, whose OpenMP reads the variables once.
    code = (
        "import sys, mrtf_fedml.cli as cli\n"
        "cli.limit_thread_spinning = lambda: print('torch' in sys.modules)\n"
        "cli.main(['report', 'no such'])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False"
