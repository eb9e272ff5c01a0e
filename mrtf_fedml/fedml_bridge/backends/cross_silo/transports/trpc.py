"""TRPC: PyTorch's RPC, with the server as rendezvous.

All parties connect once, at the start, and their number is fixed then. PyTorch admits nobody later, so a restarted silo
cannot rejoin. Whoever reaches the ports can run code: PyTorch's calls are pickled functions.
"""

from __future__ import annotations

import csv
import logging
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from fedml.core.distributed.communication.constants import CommunicationConstants
from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.communication.trpc.utils import WORKER_NAME, set_device_map
from torch.distributed import rpc

from .....config import SiloSettings
from .....errors import RunStopped, UserError
from .base import PartyAddress, Transport, Unreachable
from .codec import make_message

_log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 5

#: The transport of this process. A remote call names a module-level function, not an object.
_transport: TrpcTransport | None = None


def _receive_here(params: dict[str, Any]) -> None:
    """What a sender runs in the receiver's process."""
    if _transport is not None:
        _transport.deliver_or_drop(lambda: make_message(params))


class TrpcTransport(Transport):
    """A party's connection over PyTorch's RPC."""

    supports_rejoin: ClassVar[bool] = False

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__(address)
        global _transport
        _transport = self
        rendezvous = _read_rendezvous(getattr(args, "trpc_master_config_path", None))
        _connect_in_time(
            lambda: _connect(rendezvous, args, address, settings), settings.start_timeout, rendezvous, address
        )

    def close(self, graceful: bool = False) -> None:
        """Disconnect together with the others, or alone where one of them is dead."""
        try:
            rpc.shutdown(graceful=graceful, timeout=_SHUTDOWN_SECONDS)
        except RuntimeError as error:
            # PyTorch has shut this end down anyway; another party was faster, or is dead.
            _log.debug("the parties did not disconnect together: %s", error)

    def _send(self, message: Message) -> None:
        """Call the receiver and wait until it has the message."""
        receiver = self._receiver(message)
        try:
            rpc.rpc_sync(receiver, _receive_here, args=(message.get_params(),), timeout=self.address.send_timeout)
        except RuntimeError as error:
            raise Unreachable(f"{receiver} ({str(error).splitlines()[0]})") from error

    def _send_nowait(self, message: Message) -> None:
        """Call without waiting."""
        receiver = self._receiver(message)
        try:
            rpc.rpc_async(receiver, _receive_here, args=(message.get_params(),), timeout=self.address.send_timeout)
        except RuntimeError:
            # The agent has been shut down, or the connection to the receiver is broken.
            return

    def _receiver(self, message: Message) -> str:
        return WORKER_NAME.format(self.address.ranks[int(message.get_receiver_id())])


def _connect(rendezvous: tuple[str, str], args: Any, address: PartyAddress, settings: SiloSettings) -> None:
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=16,
        rpc_timeout=settings.start_timeout,
        init_method=f"tcp://{rendezvous[0]}:{rendezvous[1]}",
        _transports=["uv"],
    )
    if getattr(args, "enable_cuda_rpc", False):
        set_device_map(options, address.rank, args.cuda_rpc_gpu_mapping)
    rpc.init_rpc(
        WORKER_NAME.format(address.rank),
        backend=rpc.backend_registry.BackendType["TENSORPIPE"],
        rank=address.rank,
        world_size=address.silos + 1,
        rpc_backend_options=options,
    )


def _connect_in_time(
    connect: Callable[[], None], seconds: float, rendezvous: tuple[str, str], address: PartyAddress
) -> None:
    """Connect in a thread: PyTorch's own wait ignores Ctrl-C and our timeout."""
    failures: list[Exception] = []

    def attempt() -> None:
        try:
            connect()
        except (RuntimeError, ValueError) as error:
            failures.append(error)

    thread = threading.Thread(target=attempt, name="TRPC rendezvous", daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    with warnings.catch_warnings():
        # PyTorch warns about its own internal calls there.
        warnings.simplefilter("ignore", UserWarning)
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(timeout=0.2)
    if thread.is_alive() or failures:
        reason = f" ({str(failures[0]).splitlines()[0]})" if failures else ""
        raise RunStopped(
            f"the server and all {address.silos} silos did not connect at {rendezvous[0]}:{rendezvous[1]} within "
            f"{seconds:g} s (comm_args.start_timeout){reason}; with TRPC all parties must be present at the start"
        )


def _read_rendezvous(file: str | None) -> tuple[str, str]:
    """The server's address from FedML's table: a header line, then `ip,port`; without a table, this machine."""
    if not file:
        return "127.0.0.1", str(CommunicationConstants.GRPC_BASE_PORT)
    if not Path(file).is_file():
        raise UserError(f"comm_args.trpc_master_config_path: there is no file {file!r}; write it or correct the path")
    with open(file, newline="") as opened:
        rows = [row for row in csv.reader(opened) if row]
    if len(rows) < 2 or len(rows[1]) != 2 or not rows[1][1].strip().isdigit():
        raise UserError(f"{file!r}: the first line is a header, the second the server's ip,port; correct it")
    return rows[1][0].strip(), rows[1][1].strip()
