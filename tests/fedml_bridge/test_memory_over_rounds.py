"""The quickstart for 300 rounds: what the process holds after the first rounds it holds at the end."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import mrtf_fedml
from mrtf_fedml.cli import main
from tests.conftest import read_metrics

#: MRTF_ROUNDS changes it, for who has less time.
ROUNDS = int(os.environ.get("MRTF_ROUNDS", "300"))
#: Until then PyTorch's and the allocator's own caches grow.
WARM = 30
CONFIG = Path(__file__).parents[2] / "fedml_configs" / "quickstart.yaml"


class Gauge(mrtf_fedml.Callback):
    """Resident megabytes, open files and threads after each round, among the round's own numbers."""

    def on_round_end(self, run: Any, line: dict[str, Any]) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        line["megabytes"] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        line["handles"] = len(os.listdir("/proc/self/fd"))
        line["threads"] = threading.active_count() + len(os.listdir("/proc/self/task"))


@pytest.mark.slow
def test_300_rounds_keep_memory_handles_and_threads_constant(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    changes = {
        "comm_round": ROUNDS,
        "run_dir": run_dir,
        "threads": 1,
        "callbacks": "[tests.fedml_bridge.test_memory_over_rounds:Gauge]",
    }
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    assert main(["run", "--cf", str(CONFIG), *words]) == 0
    lines = read_metrics(run_dir)
    assert len(lines) == ROUNDS
    early, late = lines[WARM], lines[-1]
    usage = {key: (round(early[key], 1), round(late[key], 1)) for key in ("megabytes", "handles", "threads")}
    print(usage, round(sum(line["client_seconds"] + line["server_seconds"] for line in lines)), "s")
    assert late["megabytes"] - early["megabytes"] < 30, usage
    assert late["handles"] == early["handles"], usage
    assert late["threads"] == early["threads"], usage
    states = sorted(path.name for path in (run_dir / "state").glob("server*"))
    assert states == ["server.safetensors"]
