"""Which client a free rank gets next, and what happens to a rank that hangs."""

from __future__ import annotations

import pytest

from mrtf_fedml.errors import RunStopped
from mrtf_fedml.fedml_bridge.backends.mpi import rank_pool
from mrtf_fedml.fedml_bridge.backends.mpi.rank_pool import ClientQueue


def test_client_queue_returns_each_client_once_largest_first() -> None:
    load = {client: client % 7 for client in range(40)}
    queue = ClientQueue(range(40), load)
    order = [queue.next_client() for _ in range(41)]
    assert order[-1] is None
    assert sorted(client for client in order if client is not None) == list(range(40))
    loads = [load[client] for client in order if client is not None]
    assert loads == sorted(loads, reverse=True)


def test_rank_monitor_warns_of_a_slow_rank_and_stops_the_run_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(rank_pool.time, "monotonic", lambda: now[0])
    monitor = rank_pool.RankMonitor(timeout=8.0)
    monitor.mark_started(1, 5, round_index=2)
    monitor.mark_started(2, 6, round_index=2)
    monitor.mark_finished(2)
    monitor.check()
    assert caplog.text == ""
    now[0] = 3.0
    monitor.check()
    monitor.check()
    assert caplog.text.count("rank 1 has returned nothing for client 5 of round 2") == 1
    now[0] = 8.5
    with pytest.raises(RunStopped, match=r"rank 1 .* client 5 .*rank_timeout"):
        monitor.check()
