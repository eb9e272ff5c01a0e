"""The server's side of an algorithm: its rule, its state, and the bench it works on."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..algorithms import Algorithm, ServerBench, ServerState
from ..errors import UserError
from ..models import FeatureTap, in_layout
from ..models.compiled import compile_reading
from ..models.fitness import check_fit
from ..models.positions import positions_of
from ..models.weights import snapshot
from ..settings import RunSettings
from ..settings.precision import precision_of


class Server:
    """What there is one of in a run, whichever process plays the server."""

    def __init__(self, algorithm: Algorithm, model: nn.Module) -> None:
        self.algorithm = algorithm
        self.model = model
        if algorithm.settings.device.compile:
            compile_reading(model)
        self.state: ServerState = algorithm.first_state(snapshot(model))
        self._bench: ServerBench | None = None

    @property
    def settings(self) -> RunSettings:
        """The run's."""
        return self.algorithm.settings

    @property
    def bench(self) -> ServerBench:
        """The server's inputs and its reusable model."""
        if self._bench is None:
            raise UserError(
                f"{self.algorithm.name} has no server set: call mrtf_fedml.register() before FedMLRunner, or "
                "aggregator.bind_server_set(inputs) yourself"
            )
        return self._bench

    @bench.setter
    def bench(self, bench: ServerBench) -> None:
        self._bench = bench

    def bind_server_set(self, inputs: Tensor, classes: int | None = None, device: Any = None) -> None:
        """Hand over the server's unlabelled inputs, [M, ...]."""
        if len(inputs) == 0:
            raise UserError("the server's set is empty; MrTF has nothing to label")
        self.model.to(device or "cpu")
        inputs = in_layout(self.model, inputs.to(device or "cpu"))
        logits = check_fit(self.model, inputs[:2], classes, f"the model ({type(self.model).__name__})")
        tap = FeatureTap(self.model, self.settings.model.feature_layer, inputs[:2])
        precision = precision_of(self.settings.device.precision)
        self._bench = ServerBench(self.model, inputs, tap, logits.shape[1], positions_of(logits), precision)
