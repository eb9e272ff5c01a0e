"""MPI: all parties are ranks of one `mpirun`, which starts them and, if one dies, ends them all."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from fedml.core.distributed.communication.message import Message
from fedml.core.distributed.communication.mpi.mpi_receive_thread import MPIReceiveThread

from ....errors import UserError
from ....settings import SiloSettings
from .backend import PartyAddress, SiloBackend


class MpiBackend(SiloBackend):
    """One end of the federation over MPI."""

    takes_back: ClassVar[bool] = False

    def __init__(self, args: Any, address: PartyAddress, settings: SiloSettings) -> None:
        super().__init__()
        self._comm = args.comm
        if self._comm is None or self._comm.Get_size() != address.silos + 1:
            started = 1 if self._comm is None else self._comm.Get_size()
            raise UserError(
                f"backend MPI has {started} processes for the server and {address.silos} silos; start it with "
                f"mpirun -n {address.silos + 1}"
            )
        self._ranks = address.ranks
        # Rounds and pings are sent from two threads.
        self._sending = threading.Lock()
        self._receiving = MPIReceiveThread(self._comm, address.rank, address.silos + 1, "MPI receive", self.arrived)
        self._receiving.daemon = True
        self._receiving.start()

    def _send(self, msg: Message) -> None:
        """Hand the message to MPI, which knows no dead receiver: mpirun ends the run if there is one."""
        with self._sending:
            self._comm.send(msg, dest=self._ranks[int(msg.get_receiver_id())])

    def stop_receive_message(self) -> None:
        """Leave MPI alone; it is finalised when the process ends."""
        self._receiving.stop()
        self._receiving.join(timeout=5)
        super().stop_receive_message()
