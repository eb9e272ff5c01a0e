"""FedML's list of eight with the server's set apart: what every run of ours is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .examiner import Examiner
from .preprocessing import Preprocessing
from .shards import UnlabelledSet


class TransductiveDataset(list[Any]):
    """FedML's list of eight, in which the server's set has no labels.

    The entries are train_num, test_num, train_global, test_global, train_local_num_dict, train_local_dict,
    test_local_dict and class_num; test_global gives (x, -1) pairs.
    """

    def __init__(
        self,
        *,
        train_num: int,
        train_global: Any,
        train_local_num_dict: Any,
        train_local_dict: Any,
        test_local_dict: Any,
        server_inputs: Tensor,
        examiner: Examiner | None,
        ids: list[str],
        class_names: list[str],
        batch_size: int,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        #: The server's samples [M, ...], in the order in which predictions are given.
        self.server_inputs = server_inputs
        #: Scores predictions for them; None where no true labels exist.
        self.examiner = examiner
        #: The user's name of each server sample.
        self.ids = ids
        self.class_names = class_names
        #: What was done to the samples.
        self.preprocessing = preprocessing or Preprocessing()
        #: In a rehearsal the server's own samples, for which the clients' stand in; else None.
        self.real_inputs: Tensor | None = None
        super().__init__(
            [
                train_num,
                len(server_inputs),
                train_global,
                UnlabelledSet(server_inputs, batch_size),
                train_local_num_dict,
                train_local_dict,
                test_local_dict,
                len(class_names),
            ]
        )

    def forget_server_set(self) -> None:
        """Let go of the server's inputs and of its examiner, in a process that only trains clients."""
        self.hold_server_inputs(self.server_inputs[:0].clone())
        self.examiner = self.real_inputs = None

    def hold_server_inputs(self, inputs: Tensor) -> None:
        """Hold these in place of the server's inputs: the same samples as somebody else has laid them out, once."""
        self.server_inputs = inputs
        self[3] = UnlabelledSet(inputs, self[3].batch_size)

    @property
    def example_inputs(self) -> Tensor:
        """Inputs to try a model on."""
        return self.server_inputs

    @property
    def class_num(self) -> int:
        """The number of classes C."""
        return len(self.class_names)

    @property
    def client_num(self) -> int:
        """The number of clients K whose data are here."""
        return len(self[5] or ())

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, without the batch."""
        return tuple(self.server_inputs.shape[1:])
