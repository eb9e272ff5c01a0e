"""FedML's ClientTrainer, made of any algorithm's client rule."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from fedml.core import ClientTrainer
from torch import Tensor, nn

from ..algorithms import FedAvg
from ..algorithms.contract import ClientUpdate
from ..models.weights import load, snapshot
from ..privacy.mechanism import noise_generator, protected
from .arguments import AsFedAvg, settings_of
from .messages import (
    Payload,
    extra_of,
    weights_of,
    with_extra,
    with_loss,
)


class AlgorithmTrainer(ClientTrainer):
    """FedML's client side of an algorithm."""

    algorithm_class: ClassVar[type[FedAvg]]

    def __init__(self, model: nn.Module, args: Any) -> None:
        super().__init__(model, AsFedAvg(args))
        self.algorithm = self.algorithm_class(settings_of(args))
        self._given: Payload = {}
        self._start: Payload = {}
        self._trained: ClientUpdate | None = None
        self._outgoing: ClientUpdate | None = None

    def get_model_params(self) -> OrderedDict[str, Tensor]:
        """The weights as clones, and, after local training, the loss and what else it tells, under reserved keys."""
        message = snapshot(self.model)
        if self._outgoing is not None and self._outgoing.loss is not None:
            message = with_loss(message, self._outgoing.loss)
        if self._outgoing is not None and self._outgoing.variate is not None:
            message = with_extra(message, self._outgoing.variate)
        return message

    def set_model_params(self, model_parameters: Payload) -> None:
        """Start from these weights."""
        self._outgoing = None
        self._given = extra_of(model_parameters)
        load(self.model, weights_of(model_parameters))

    def train(self, train_data: Iterable[Any], device: torch.device, args: Any) -> None:
        """The client's rule, for the client `self.id` in the round `args.round_idx`."""
        self.model.to(device)
        self._start = snapshot(self.model)
        self._trained = self.algorithm.train_client(
            self.model,
            start=self._start,
            data=train_data,
            samples=self.local_sample_number,
            client=int(self.id),
            round_index=int(args.round_idx),
            given=self._given,
        )

    def on_after_local_training(self, train_data: Iterable[Any], device: torch.device, args: Any) -> None:
        """Differential privacy, FedML's or ours; then the loss, which is no weight.

        With ours the loss stays with the client: it leaves by no noisy channel, and the server has a fallback for it.
        """
        super().on_after_local_training(train_data, device, args)
        self._outgoing = self._trained
        settings = self.algorithm.settings
        if settings.privacy.active and self._trained is not None:
            generator = noise_generator(settings, int(self.id), int(args.round_idx))
            load(self.model, protected(self._start, snapshot(self.model), settings.privacy, generator))
            self._outgoing = replace(self._trained, loss=None)
