"""The server of a run: the algorithm, its state, and the context of the server's set."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..algorithms import Algorithm, ServerContext, ServerState
from ..algorithms.types import Weights
from ..config import RunSettings
from ..config.sections import parse_precision
from ..errors import UserError
from ..models import FeatureExtractor, match_layout
from ..models.checks import check_model_output
from ..models.outputs import num_positions
from ..models.state_dict import load_weights, snapshot


class Server:
    """One per run, in the process that is the server."""

    def __init__(self, algorithm: Algorithm, model: nn.Module) -> None:
        self.algorithm = algorithm
        self.model = model
        self.state: ServerState = algorithm.init_state(snapshot(model))
        self._context: ServerContext | None = None

    def start_from(self, weights: Weights) -> None:
        """Start the training from these weights; names and shapes must be those of the model."""
        load_weights(self.model, weights)
        self.state = self.algorithm.init_state(snapshot(self.model))

    @property
    def settings(self) -> RunSettings:
        """The run's settings."""
        return self.algorithm.settings

    @property
    def context(self) -> ServerContext:
        """The server's inputs, and a model to evaluate on them."""
        if self._context is None:
            raise UserError(
                f"{self.algorithm.name} has no server set: call mrtf_fedml.register() before FedMLRunner, or "
                "aggregator.bind_server_set(inputs) yourself"
            )
        return self._context

    @context.setter
    def context(self, context: ServerContext) -> None:
        self._context = context

    def bind_server_set(self, inputs: Tensor, classes: int | None = None, device: Any = None) -> None:
        """Set the server's unlabelled inputs, [M, ...]."""
        if len(inputs) == 0:
            raise UserError("the server's set is empty; there is nothing to label")
        self.model.to(device or "cpu")
        inputs = match_layout(self.model, inputs.to(device or "cpu"))
        logits = check_model_output(self.model, inputs[:2], classes, f"the model ({type(self.model).__name__})")
        extractor = FeatureExtractor(self.model, self.settings.model.feature_layer, inputs[:2])
        precision = parse_precision(self.settings.device.precision)
        self._context = ServerContext(self.model, inputs, extractor, logits.shape[1], num_positions(logits), precision)
