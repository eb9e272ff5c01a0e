"""FedML's ClientTrainer, made of any algorithm's client rule."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from fedml.core import ClientTrainer
from torch import Tensor, nn

from ..algorithms import Algorithm, ClientTask, ClientUpdate
from ..algorithms.exchange import as_tensors
from ..errors import UserError
from ..models.precision import computing
from ..models.weights import apart, clone, refuse_misfit, snapshot
from ..privacy.mechanism import noise_generator, protected
from ..settings.precision import precision_of
from .arguments import AsFedAvg, settings_of
from .messages import Payload, extra_of, update_payload, weights_of


class AlgorithmTrainer(ClientTrainer):
    """FedML's client side of an algorithm. What the algorithm's `train_client` returns is what is sent."""

    algorithm_class: ClassVar[type[Algorithm]]

    def __init__(self, model: nn.Module, args: Any) -> None:
        super().__init__(model, AsFedAvg(args))
        self.algorithm = self.algorithm_class(settings_of(args))
        #: What the server sent; None before anything came.
        self._received: Payload | None = None
        #: theta_t of the turn.
        self._start: Payload = {}
        #: What was trained from it; None until then.
        self._update: ClientUpdate | None = None
        #: Whether the update is ready to leave: FedML's and our noise are on it.
        self._sealed = False

    def get_model_params(self) -> OrderedDict[str, Tensor]:
        """After the hooks, all that the client sends; before them the weights alone, which FedML may add noise to."""
        if self._update is not None and self._sealed:
            return update_payload(self._update, self.local_sample_number)
        if self._update is not None:
            return weights_of(self._update.weights)
        return snapshot(self.model) if self._received is None else clone(weights_of(self._received))

    def set_model_params(self, model_parameters: Payload) -> None:
        """What the server sent; or, between training and sending, the weights with FedML's noise on them."""
        if self._update is not None and not self._sealed:
            self._update = replace(self._update, weights=weights_of(model_parameters))
            return
        self._received, self._update, self._sealed = model_parameters, None, False

    def train(self, train_data: Iterable[Any], device: torch.device, args: Any) -> None:
        """The client's rule, for the client `self.id` in the round `args.round_idx`."""
        self.model.to(device)
        self._start = snapshot(self.model) if self._received is None else weights_of(self._received)
        task = ClientTask(
            client=int(self.id),
            round=int(args.round_idx),
            start=self._start,
            data=train_data,
            samples=self.local_sample_number,
            extra=extra_of(self._received or {}),
        )
        # Around the whole rule, so that every algorithm's clients heed it.
        precision = precision_of(self.algorithm.settings.device.precision).local
        with computing(precision, torch.device(device)):
            update, self._sealed = self.algorithm.train_client(self.model, task), False
        refuse_misfit(f"what {self.algorithm.name}'s train_client returns", update.weights, self._start)
        # A rule may return the model's own tensors, which the next client of this process overwrites.
        lent = list(self.model.state_dict().values())
        self._update = replace(update, weights=apart(update.weights, lent), extra=apart(as_tensors(update.extra), lent))

    def on_after_local_training(self, train_data: Iterable[Any], device: torch.device, args: Any) -> None:
        """Differential privacy, FedML's or ours; then the update may leave."""
        super().on_after_local_training(train_data, device, args)
        privacy = self.algorithm.settings.privacy
        if self._update is not None and privacy.promised:
            self._refuse_extra(self._update)
            if privacy.active:
                self._update = self._private(self._update)
        self._sealed = True

    def test(self, test_data: Any, device: Any, args: Any) -> None:
        """Nothing: what counts is scored by the server, on its own set."""

    def _private(self, update: ClientUpdate) -> ClientUpdate:
        """Clipped and noised. The loss stays with the client: it has no noise, and the server can do without.

        So does a sample count of the algorithm's own; that of the shard is FedML's to tell.
        """
        settings = self.algorithm.settings
        generator = noise_generator(settings, update.client, int(self.args.round_idx))
        weights = protected(self._start, update.weights, settings.privacy, generator)
        return replace(update, weights=weights, samples=self.local_sample_number, loss=None)

    def _refuse_extra(self, update: ClientUpdate) -> None:
        """Noise, FedML's or ours, is put on the weights alone."""
        if update.extra:
            raise UserError(
                f"{self.algorithm.name} sends {', '.join(update.extra)} beside the weights, without noise, so no "
                "privacy (dp_args) can be promised; leave clip, sigma and enable_dp out, or choose another algorithm"
            )
