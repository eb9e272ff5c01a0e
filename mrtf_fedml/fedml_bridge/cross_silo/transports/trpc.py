"""TRPC: PyTorch's own remote calls, with the server as their meeting point.

All parties meet once, at the start, and their number is fixed then: PyTorch lets nobody in later, so a silo that was
started anew cannot come back. Whoever reaches the ports can run code: PyTorch's calls are pickled functions.
"""

from __future__ import annotations

import csv
import logging
import queue
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

from ....errors import RunStopped, UserError
from ....settings import SiloSettings
from .backend import PartyAddress, SiloBackend, Unreachable
from .codec import message_of

_log = logging.getLogger(__name__)

_FAREWELL_SECONDS = 5

#: Where calls from others put what they bring; a call names a function, not an object.
_mailbox: queue.Queue[Any] = queue.Queue()


def _bring(params: dict[str, Any]) -> None:
    """What a sender runs in the receiver's process."""
    _mailbox.put(params)


class TrpcBackend(SiloBackend):
    """One end of the federation over PyTorch's RPC."""

    takes_back: ClassVar[bool] = False

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__()
        global _mailbox
        _mailbox = self.arrived
        self._ranks = address.ranks
        self._patience = address.patience
        meeting_point = _meeting_point(getattr(args, "trpc_master_config_path", None))
        _bounded(lambda: _meet(meeting_point, args, address, settings), settings.start_timeout, meeting_point, address)

    def read(self, raw: dict[str, Any]) -> Message:
        """The message around what was brought."""
        return message_of(raw)

    def _send(self, msg: Message) -> None:
        """Call the receiver and wait until it has the message."""
        try:
            rpc.rpc_sync(self._receiver(msg), _bring, args=(msg.get_params(),), timeout=self._patience)
        except RuntimeError as error:
            raise Unreachable(f"{self._receiver(msg)} ({str(error).splitlines()[0]})") from error

    def _ping(self, msg: Message) -> None:
        """Call without waiting."""
        try:
            rpc.rpc_async(self._receiver(msg), _bring, args=(msg.get_params(),), timeout=self._patience)
        except RuntimeError:
            # The agent has been shut down, or the receiver's connection is known to be broken.
            return

    def stop_receive_message(self) -> None:
        """Leave together with the others; where one of them is dead, alone."""
        try:
            rpc.shutdown(graceful=self.ended_well, timeout=_FAREWELL_SECONDS)
        except RuntimeError as error:
            # PyTorch has shut this end down all the same; another end was quicker, or is dead.
            _log.debug("the parties did not leave together: %s", error)
        super().stop_receive_message()

    def _receiver(self, msg: Message) -> str:
        return WORKER_NAME.format(self._ranks[int(msg.get_receiver_id())])


def _meet(meeting_point: tuple[str, str], args: Any, address: PartyAddress, settings: SiloSettings) -> None:
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=16,
        rpc_timeout=settings.start_timeout,
        init_method=f"tcp://{meeting_point[0]}:{meeting_point[1]}",
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


def _bounded(meet: Callable[[], None], seconds: float, meeting_point: tuple[str, str], address: PartyAddress) -> None:
    """Meet the others, in a thread: PyTorch's own waiting hears neither Ctrl-C nor our clock."""
    failures: list[Exception] = []

    def attempt() -> None:
        try:
            meet()
        except (RuntimeError, ValueError) as error:
            failures.append(error)

    thread = threading.Thread(target=attempt, name="meeting", daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    with warnings.catch_warnings():
        # PyTorch warns of how PyTorch calls itself there.
        warnings.simplefilter("ignore", UserWarning)
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(timeout=0.2)
    if thread.is_alive() or failures:
        why = f" ({str(failures[0]).splitlines()[0]})" if failures else ""
        raise RunStopped(
            f"the server and all {address.silos} silos did not meet at {meeting_point[0]}:{meeting_point[1]} within "
            f"{seconds:g} s (comm_args.start_timeout){why}; over TRPC everybody must be there at the start"
        )


def _meeting_point(file: str | None) -> tuple[str, str]:
    """FedML's table: a header line, then the server's `ip,port`; without one, this machine."""
    if not file:
        return "127.0.0.1", str(CommunicationConstants.GRPC_BASE_PORT)
    if not Path(file).is_file():
        raise UserError(f"comm_args.trpc_master_config_path: there is no file {file!r}; write it or correct the path")
    with open(file, newline="") as opened:
        rows = [row for row in csv.reader(opened) if row]
    if len(rows) < 2 or len(rows[1]) != 2 or not rows[1][1].strip().isdigit():
        raise UserError(f"{file!r}: the first line is a header, the second the server's ip,port; correct it")
    return rows[1][0].strip(), rows[1][1].strip()
