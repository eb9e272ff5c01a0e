"""FedML's cross-device training with our server: what it needs, from what FedMLRunner is given."""

from __future__ import annotations

import json
from typing import Any

import torch

from ...algorithms import Algorithm
from ...data import TransductiveDataset, from_fedml
from ...errors import UserError
from ...randomness import forked
from ...settings import RunSettings
from ..arguments import settings_of
from ..pair import pair_of
from ..server_side import AlgorithmAggregator
from .exchange import Exchange
from .pictures import as_on_device
from .server import DeviceServer
from .twins import Twin

BACKEND = "MQTT_S3_MNN"
#: What the app reads of the sections that a start message carries.
_TRAIN_KEYS = (
    "batch_size",
    "learning_rate",
    "epochs",
    "comm_round",
    "client_num_in_total",
    "client_num_per_round",
    "client_optimizer",
    "weight_decay",
    "federated_optimizer",
)
_DATA_KEYS = ("dataset", "train_size", "test_size", "partition_method")


def server_of(
    args: Any,
    device: torch.device,
    dataset: Any,
    model: Any,
    algorithm_class: type[Algorithm],
    aggregator: AlgorithmAggregator | None = None,
) -> DeviceServer:
    """The server of a federation of devices.

    Args:
        args: FedML's arguments.
        device: where the server computes.
        dataset: FedML's eight, of which the server's set and the number of classes are used.
        model: the twin whose weights the run starts from; None, as FedML's model hub gives it for devices, or any other
            module makes a new one.
        algorithm_class: what runs.
        aggregator: one of ours, where the user has given it.
    """
    settings = settings_of(args)
    _check(args, settings, algorithm_class(settings))
    given = from_fedml(dataset)
    exchange = exchange_of(settings, given.class_num)
    if isinstance(model, Twin):
        exchange.twin.load_state_dict(model.state_dict())
    _fit(given, exchange.twin)
    if aggregator is None:
        aggregator = pair_of(algorithm_class)[1](exchange.twin, args)
    elif not isinstance(aggregator.model, Twin):
        raise UserError("the aggregator's model is no twin of a device's; leave the aggregator out")
    train = {key: getattr(args, key) for key in _TRAIN_KEYS if hasattr(args, key)}
    data = {key: getattr(args, key) for key in _DATA_KEYS if hasattr(args, key)}
    return DeviceServer(args, device, given, aggregator, exchange, _ids(settings), (train, data))


def exchange_of(settings: RunSettings, classes: int) -> Exchange:
    """The network of the run, its initial weights drawn from the run's seed."""
    with forked(settings.common.random_seed, "initial weights"):
        return Exchange(settings.model.model, classes)


def _fit(dataset: TransductiveDataset, twin: Twin) -> None:
    """The server's pictures as devices give theirs to the network."""
    dataset.server_inputs = as_on_device(dataset.server_inputs, twin.input_shape)


def _check(args: Any, settings: RunSettings, algorithm: Algorithm) -> None:
    if args.backend != BACKEND:
        raise UserError(f"comm_args.backend is {args.backend!r}; devices are reached by {BACKEND} alone")
    if algorithm.has_own_client_rule():
        raise UserError(
            f"{algorithm.name}'s clients do more than train, and a device does nothing else; take an algorithm whose "
            "clients only train (FedAvg, FedOpt, FedDF, MrTF)"
        )
    if settings.privacy.active:
        raise UserError("dp_args: devices clip and noise nothing, so no privacy could be promised; leave it out")
    if str(getattr(args, "enable_dp", False)).lower() == "true" and getattr(args, "dp_solution_type", "") == "ldp":
        raise UserError("dp_solution_type 'ldp': devices add no noise, so no privacy could be promised; leave it out")
    if not str(args.run_id).isdigit():
        raise UserError(f"common_args.run_id is {args.run_id!r}; devices read it as a whole number, such as 1")
    if settings.silo.min_silos > settings.train.client_num_per_round:
        raise UserError(
            f"comm_args.min_silos is {settings.silo.min_silos} but only {settings.train.client_num_per_round} devices "
            "take part in a round (train_args.client_num_per_round); lower it"
        )


def _ids(settings: RunSettings) -> list[int]:
    """The devices' ids, by client: those of `client_id_list`, or 1, 2, ..."""
    # The user's own: `fedml.init` writes another into its arguments, of as many ids as take part in one round.
    lists = [section["client_id_list"] for section in settings.given.values() if "client_id_list" in section]
    given, number = lists[0] if lists else None, settings.train.client_num_in_total
    if given in (None, "", "[]", "None"):
        return list(range(1, number + 1))
    try:
        ids = [int(one) for one in (json.loads(given) if isinstance(given, str) else given)]
    except (ValueError, TypeError):
        raise UserError(f"client_id_list is {given!r}; give the devices' ids as a list of whole numbers") from None
    if len(ids) != number or len(set(ids)) != number:
        raise UserError(
            f"client_id_list names {len(set(ids))} devices and train_args.client_num_in_total is {number}; make them "
            "agree"
        )
    return ids
