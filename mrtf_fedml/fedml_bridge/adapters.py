"""FedML's ClientTrainer and ServerAggregator for any algorithm of ours: thin adapters around its rules.

Our own servers run whole rounds (`training.round.run_round`). The aggregator's three hooks are the same round in the
steps in which FedML's servers call it: on_before_aggregation validates the replies and runs FedML's attacks and
defences; aggregate is the average alone, or FedML's defence; on_after_aggregation runs FedML's noise and defences, then
the algorithm's server update.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from fedml.core import ClientTrainer, ServerAggregator
from torch import Tensor, nn

from ..algorithms import Algorithm, ClientTask, ClientUpdate, algorithm_by_name
from ..algorithms.types import as_tensors
from ..config.sections import parse_precision
from ..data import TransductiveDataset
from ..errors import UserError
from ..models.group import ModelGroup, with_member
from ..models.precision import autocast
from ..models.state_dict import check_state_dict, clone, clone_if_aliased, load_weights, snapshot
from ..privacy.mechanism import client_noise, protect_update
from ..rng import fork_rng
from ..training.round import RoundReplies, RoundTasks, apply_server_update, screen_replies, validate_replies
from ..training.server import Server
from .aggregation_hooks import FedMLHooks
from .args import FedAvgArguments, settings_of
from .messages import LOSS, MessageTensors, pack_update, payload_of, unpack_update, weights_of

_Entries = list[tuple[float, OrderedDict[str, Tensor]]]


class AlgorithmTrainer(ClientTrainer):
    """FedML's client side of an algorithm. What the algorithm's `train_client` returns is what is sent.

    Args:
        model: reused for all clients of this process.
        args: FedML's arguments.
        algorithm: the process's algorithm object; where none is given, one is made from the settings in `args`.
    """

    algorithm_class: ClassVar[type[Algorithm]]

    def __init__(self, model: nn.Module, args: Any, algorithm: Algorithm | None = None) -> None:
        super().__init__(model, FedAvgArguments(args))
        self.algorithm = algorithm or self.algorithm_class(settings_of(args))
        #: The server's last message; None before the first.
        self._received: MessageTensors | None = None
        #: theta_t.
        self._initial: MessageTensors = {}
        #: What was trained from it; None until then.
        self._update: ClientUpdate | None = None
        #: Whether the update may be sent: FedML's and our noise have been added.
        self._is_final = False

    def get_model_params(self) -> OrderedDict[str, Tensor]:
        """After the hooks, all that the client sends; before them the weights alone, to which FedML may add noise."""
        if self._update is not None and self._is_final:
            return pack_update(self._update, self.local_sample_number)
        if self._update is not None:
            return weights_of(self._update.weights)
        return snapshot(self.model) if self._received is None else clone(weights_of(self._received))

    def set_model_params(self, model_parameters: MessageTensors) -> None:
        """The server's message; or, between training and sending, the weights with FedML's noise."""
        if self._update is not None and not self._is_final:
            self._update = replace(self._update, weights=weights_of(model_parameters))
            return
        self._received, self._update, self._is_final = model_parameters, None, False

    def train(self, train_data: Iterable[Any], device: torch.device, args: Any) -> None:
        """The algorithm's client rule, for the client `self.id` in the round `args.round_idx`."""
        self.model.to(device)
        self._initial = snapshot(self.model) if self._received is None else weights_of(self._received)
        task = ClientTask(
            client=int(self.id),
            round=int(args.round_idx),
            weights=self._initial,
            data=train_data,
            samples=self.local_sample_number,
            payload=payload_of(self._received or {}),
        )
        if isinstance(self.model, ModelGroup):
            self.model.own = self.algorithm.settings.model.member_of(task.client)
        # Around the whole rule, so that it holds for every algorithm's clients.
        precision = parse_precision(self.algorithm.settings.device.precision).local
        with autocast(precision, torch.device(device)):
            update, self._is_final = self.algorithm.train_client(self.model, task), False
        check_state_dict(f"what {self.algorithm.name}'s train_client returns", update.weights, self._initial)
        if isinstance(self.model, ModelGroup):
            assert self.model.own is not None
            update = replace(update, weights=with_member(update.weights, self.model.own))
        # A rule may return the model's own tensors, which the next client of this process overwrites.
        model_tensors = list(self.model.state_dict().values())
        self._update = replace(
            update,
            weights=clone_if_aliased(update.weights, model_tensors),
            payload=clone_if_aliased(as_tensors(update.payload), model_tensors),
        )

    def on_after_local_training(self, train_data: Iterable[Any], device: torch.device, args: Any) -> None:
        """Differential privacy, FedML's or ours; then the update may be sent."""
        super().on_after_local_training(train_data, device, args)
        privacy = self.algorithm.settings.privacy
        if self._update is not None and privacy.has_any_dp:
            if not self.algorithm.aggregates_payload:
                self._check_no_payload(self._update)
            if privacy.is_active:
                self._update = self._privatize(self._update)
        self._is_final = True

    def test(self, test_data: Any, device: Any, args: Any) -> None:
        """Nothing: the server evaluates on its own set."""

    def _privatize(self, update: ClientUpdate) -> ClientUpdate:
        """The update, clipped and with noise, without what has no noise: the loss and the algorithm's own count."""
        settings = self.algorithm.settings
        noise = client_noise(settings, update.client, int(self.args.round_idx))
        if self.algorithm.aggregates_payload:
            zeros = {name: torch.zeros_like(value) for name, value in update.payload.items()}
            payload = protect_update(zeros, update.payload, settings.privacy, noise) if zeros else {}
            return replace(update, weights=self._initial, payload=payload, samples=self.local_sample_number, loss=None)
        weights = protect_update(self._initial, update.weights, settings.privacy, noise)
        return replace(update, weights=weights, samples=self.local_sample_number, loss=None)

    def _check_no_payload(self, update: ClientUpdate) -> None:
        """Noise, FedML's or ours, is added to the weights alone."""
        if update.payload:
            raise UserError(
                f"{self.algorithm.name} sends {', '.join(update.payload)} besides the weights, without noise, so that "
                "no privacy (dp_args) can be guaranteed; remove clip, sigma and enable_dp, or choose another algorithm"
            )


class AlgorithmAggregator(ServerAggregator):
    """FedML's server side of an algorithm.

    Args:
        model: the server's.
        args: FedML's arguments.
        algorithm: the process's algorithm object; where none is given, one is made from the settings in `args`.
    """

    algorithm_class: ClassVar[type[Algorithm]]

    def __init__(self, model: nn.Module, args: Any, algorithm: Algorithm | None = None) -> None:
        super().__init__(model, FedAvgArguments(args))
        self.server = Server(algorithm or self.algorithm_class(settings_of(args)), model)
        self.hooks = FedMLHooks(self)
        #: The tasks and the replies of the current round, between two hooks.
        self._tasks: RoundTasks | None = None
        self._replies = RoundReplies()

    def bind_server_set(self, inputs: Tensor, classes: int | None = None, device: Any = None) -> None:
        """Set the server's unlabelled inputs, [M, ...]."""
        self.server.bind_server_set(inputs, classes, device)

    def begin_round(self, clients: Sequence[int]) -> None:
        """Set the clients whose updates come next, in the order in which they will be listed."""
        self._tasks = RoundTasks(self.server.algorithm, self.server.state, clients)

    def get_model_params(self) -> OrderedDict[str, Tensor]:
        """theta_t, as clones: what the next clients receive."""
        return clone(self.server.state.weights)

    def set_model_params(self, model_parameters: MessageTensors) -> None:
        """Load what on_after_aggregation returned into the model; the server state has it already."""
        load_weights(self.model, weights_of(model_parameters))

    def on_before_aggregation(
        self, raw_client_model_or_grad_list: Sequence[tuple[float, MessageTensors]]
    ) -> tuple[_Entries, list[int]]:
        """Validate the replies and compare them with each other; then FedML's attacks and defences."""
        if self._tasks is None:
            self.begin_round(range(len(raw_client_model_or_grad_list)))
        assert self._tasks is not None
        updates = [
            unpack_update(client, samples, tensors)
            for client, (samples, tensors) in zip(self._tasks.clients, raw_client_model_or_grad_list, strict=True)
        ]
        replies = screen_replies(validate_replies(self._tasks, updates), self.server.state, self.hooks)
        if replies.updates:
            replies = replace(replies, updates=self.hooks.before_aggregation(replies.updates))
        self._replies = replies
        return [(update.samples, OrderedDict(update.weights)) for update in replies.updates], replies.clients

    def aggregate(self, raw_client_model_or_grad_list: _Entries) -> OrderedDict[str, Tensor]:
        """The average alone, or FedML's defence where one is enabled."""
        if not self._replies.updates:
            return self.get_model_params()
        return OrderedDict(self.hooks.aggregate(self._replies.updates, self.server.algorithm.aggregate))

    def on_after_aggregation(self, aggregated_model_or_grad: OrderedDict[str, Tensor]) -> OrderedDict[str, Tensor]:
        """FedML's noise and defences, then the algorithm's server update; returns what the next clients receive."""
        server, aggregated = self.server, aggregated_model_or_grad
        if self._replies.updates:
            aggregated = OrderedDict(self.hooks.after_aggregation(aggregated))
        updates = self._replies.updates
        server.state, _ = apply_server_update(server.algorithm, server.state, updates, aggregated, server.context)
        self._tasks = None
        return self.get_model_params()

    def test(self, test_data: Any, device: Any, args: Any) -> None:
        """Nothing: a round is evaluated, where labels exist, when it is recorded."""


def run_client(
    trainer: ClientTrainer,
    client: int,
    shard: tuple[Any, Any, int],
    received: MessageTensors,
    round_index: int,
    device: torch.device,
    args: Any,
) -> MessageTensors:
    """Train one client in one round through FedML's hooks; what it sends.

    Args:
        trainer: of this process, for all its clients.
        client: k.
        shard: the client's training data, test data and number of samples.
        received: the server's message.
        round_index: t.
        device: for training.
        args: FedML's; its hooks read the round from there.
    """
    args.round_idx = round_index
    trainer.set_id(client)
    trainer.update_dataset(*shard)
    # What a user's trainer or FedML's hooks draw from the global random state depends on the client, not the process.
    with fork_rng(int(getattr(args, "random_seed", 0)), "client", client, round_index):
        trainer.set_model_params(received)
        trainer.on_before_local_training(trainer.local_train_dataset, device, args)
        trainer.train(trainer.local_train_dataset, device, args)
        trainer.on_after_local_training(trainer.local_train_dataset, device, args)
        sent: MessageTensors = trainer.get_model_params()
    if isinstance(trainer, AlgorithmTrainer):
        return sent
    # FedML's own trainers return the model's tensors themselves, which the next client overwrites.
    return {**clone(sent), **_reported_loss(trainer, args)}


def _reported_loss(trainer: ClientTrainer, args: Any) -> dict[str, Tensor]:
    """The attribute `train_loss` of a user's own trainer, if it is a finite number.

    It has no noise, so it is not sent under differential privacy.
    """
    loss = getattr(trainer, "train_loss", None)
    if not isinstance(loss, int | float) or isinstance(loss, bool) or not math.isfinite(loss):
        return {}
    if settings_of(args).privacy.has_any_dp:
        return {}
    return {LOSS: torch.tensor(float(loss), dtype=torch.float64)}


class SimulatedClient:
    """Runs any client of a simulation; one object for all, so that no client's data are held twice."""

    def __init__(self, dataset: TransductiveDataset, device: torch.device, args: Any, trainer: ClientTrainer) -> None:
        _, _, _, _, self.samples, self.training_data, self.test_data, _ = dataset
        self.device = device
        self.args = args
        self.trainer = trainer

    def run(self, client: int, received: MessageTensors, round_index: int) -> MessageTensors:
        """The tensors that the client sends."""
        shard = (self.training_data[client], self.test_data[client], self.samples[client])
        return run_client(self.trainer, client, shard, received, round_index, self.device, self.args)


Adapters = tuple[type[AlgorithmTrainer], type[AlgorithmAggregator]]

#: One pair per class, so that `mrtf_fedml.MrTFTrainer` is always the same class.
_adapters: dict[type[Algorithm], Adapters] = {}


def make_adapters(algorithm: type[Algorithm]) -> Adapters:
    """The algorithm's trainer and aggregator classes.

    They are named `<name>Trainer` and `<name>Aggregator`, and can be imported from `mrtf_fedml` once the algorithm is
    registered.
    """
    if algorithm not in _adapters:
        trainer = type(
            f"{algorithm.name}Trainer",
            (AlgorithmTrainer,),
            {
                "__doc__": f"{algorithm.name}'s client, for FedML.",
                "__module__": "mrtf_fedml",
                "algorithm_class": algorithm,
            },
        )
        aggregator = type(
            f"{algorithm.name}Aggregator",
            (AlgorithmAggregator,),
            {
                "__doc__": f"{algorithm.name}'s server, for FedML.",
                "__module__": "mrtf_fedml",
                "algorithm_class": algorithm,
            },
        )
        _adapters[algorithm] = trainer, aggregator
    return _adapters[algorithm]


def adapter_by_name(name: str) -> type[AlgorithmTrainer] | type[AlgorithmAggregator]:
    """`<name>Trainer` or `<name>Aggregator` of a registered algorithm."""
    for position, suffix in enumerate(("Trainer", "Aggregator")):
        if name.endswith(suffix):
            try:
                return make_adapters(algorithm_by_name(name.removesuffix(suffix)))[position]
            except UserError:
                break
    raise AttributeError(f"module 'mrtf_fedml' has no attribute {name!r}")
