"""MPI: all parties are ranks of one `mpirun`, which starts them, and ends all of them if one dies."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.communication.mpi.mpi_receive_thread import MPIReceiveThread

from .....errors import UserError
from .base import PartyAddress, Transport


class MpiTransport(Transport):
    """A party's connection over MPI."""

    supports_rejoin: ClassVar[bool] = False

    def __init__(self, args: Any, address: PartyAddress) -> None:
        super().__init__(address)
        self._comm = args.comm
        if self._comm is None or self._comm.Get_size() != address.silos + 1:
            started = 1 if self._comm is None else self._comm.Get_size()
            raise UserError(
                f"backend MPI has {started} processes for the server and {address.silos} silos; start it with "
                f"mpirun -n {address.silos + 1}"
            )
        # Tasks and heartbeats are sent from different threads.
        self._send_lock = threading.Lock()
        self._receiving = MPIReceiveThread(self._comm, address.rank, address.silos + 1, "MPI receive", self)
        self._receiving.daemon = True
        self._receiving.start()

    def put(self, message: Message) -> None:
        """Queue a message; FedML's receiving thread calls this."""
        self.deliver_or_drop(lambda: message)

    def close(self, graceful: bool = False) -> None:
        """Stop receiving; MPI itself is finalised when the process ends."""
        self._receiving.stop()
        self._receiving.join(timeout=5)

    def _send(self, message: Message) -> None:
        """Pass the message to MPI, which does not report a dead receiver: mpirun ends the run then."""
        with self._send_lock:
            self._comm.send(message, dest=self.address.ranks[int(message.get_receiver_id())])
