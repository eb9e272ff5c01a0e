"""The federated dataset of a run: FedML's list of eight entries, plus the server's unlabelled set."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .evaluator import SealedEvaluator
from .known_labels import KnownLabels
from .preprocessing import Preprocessing
from .shards import UnlabelledSet


class TransductiveDataset(list[Any]):
    """FedML's list of eight entries, in which the server's set has no labels.

    The entries are train_num, test_num, train_global, test_global, train_local_num_dict, train_local_dict,
    test_local_dict and class_num; test_global yields (x, -1) pairs.
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
        evaluator: SealedEvaluator | None,
        ids: list[str],
        class_names: list[str],
        batch_size: int,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        #: The server's samples [M, ...], in the order of the predictions.
        self.server_inputs = server_inputs
        #: Scores predictions for the server's samples; None if no true labels exist.
        self.evaluator = evaluator
        #: The user's identifier of each server sample.
        self.ids = ids
        self.class_names = class_names
        #: The preprocessing that was applied to the samples.
        self.preprocessing = preprocessing or Preprocessing()
        #: Labels that the server has of some of its samples; None if of none.
        self.known_labels: KnownLabels | None = None
        #: With `data_args.holdout`, the server's own samples, which held-out samples replace; else None.
        self.real_inputs: Tensor | None = None
        #: The owner of each client's samples, where the data name them; else None.
        self.client_names: list[str] | None = None
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

    def drop_server_set(self) -> None:
        """Free the server's inputs and the evaluator, in a process that only trains clients."""
        self.replace_server_inputs(self.server_inputs[:0].clone())
        self.evaluator = self.real_inputs = self.known_labels = None

    def replace_server_inputs(self, inputs: Tensor) -> None:
        """Use `inputs`, the same samples in another memory layout, so that only one copy is kept."""
        self.server_inputs = inputs
        self[3] = UnlabelledSet(inputs, self[3].batch_size)

    @property
    def example_inputs(self) -> Tensor:
        """Inputs on which a model can be tried."""
        return self.server_inputs

    @property
    def encoder_digest(self) -> str | None:
        """Of the encoder that has encoded the samples; None without one."""
        encoder = self.preprocessing.encoder
        return None if encoder is None else encoder.digest

    @property
    def class_num(self) -> int:
        """The number of classes C."""
        return len(self.class_names)

    @property
    def client_num(self) -> int:
        """The number of clients K in this dataset."""
        return len(self[5] or ())

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, without the batch axis."""
        return tuple(self.server_inputs.shape[1:])
