"""`mrtf watch`: a live page of a run."""

from __future__ import annotations

import argparse

from ..watch.server import WatchServer, open_in_browser


def main(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    server = WatchServer(options.run_dir, options.port)
    print(f"{server.url} shows {options.run_dir}; Ctrl-C ends", flush=True)
    open_in_browser(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0
