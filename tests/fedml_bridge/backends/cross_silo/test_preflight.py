"""Whether a silo reaches the server's port, or the proxy on the way to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import RunStopped
from mrtf_fedml.fedml_bridge.backends.cross_silo.preflight import reach_server
from tests.backends.cross_silo.federation import free_ports
from tests.backends.cross_silo.proxy import Proxy, set_proxies
from tests.conftest import small_config


def reach(address: str) -> str:
    settings = RunSettings.from_config(small_config(server_address=address))
    return reach_server(SimpleNamespace(), settings)


def test_port_of_server_or_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # It serves as any port that accepts connections.
    proxy = Proxy()
    set_proxies(monkeypatch, {"https_proxy": f"http://user:secret@{proxy.address}"})
    assert reach(proxy.address) == f"{proxy.address} accepts connections"
    assert reach("hub.example:8890") == f"the proxy {proxy.address} to hub.example:8890 accepts connections"
    proxy.close()


def test_closed_port_of_server_or_proxy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(1)[0]
    set_proxies(monkeypatch, {"https_proxy": f"http://user:secret@127.0.0.1:{port}"})
    with pytest.raises(RunStopped, match=rf"^127.0.0.1:{port} cannot be reached .*refused"):
        reach(f"127.0.0.1:{port}")
    with pytest.raises(RunStopped, match=rf"the proxy 127.0.0.1:{port} to hub.example:8890 cannot") as caught:
        reach("hub.example:8890")
    assert "secret" not in str(caught.value)
