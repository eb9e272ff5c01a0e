"""Invalid algorithms and callbacks of a user: one sentence each that names the thing and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import mrtf_fedml
from mrtf_fedml import RoundReport, UserError
from tests.extension.conftest import STRANGER, WANDERER, extension_config

HERE = "tests.extension.test_refusals"


class Nameless(mrtf_fedml.Algorithm):
    pass


@dataclass(frozen=True)
class _NoDefault:
    strength: float


class NoDefault(mrtf_fedml.Algorithm):
    name = "NoDefault"
    Settings = _NoDefault


@dataclass(frozen=True)
class _Colliding:
    epochs: int = 3


class Colliding(mrtf_fedml.Algorithm):
    name = "Colliding"
    Settings = _Colliding


class Wordy(mrtf_fedml.Algorithm):
    """Sends a string to the clients."""

    name = "Wordy"

    def client_payload(self, state: Any, client: int) -> Any:
        return {"greeting": "hello"}


class WordyClient(mrtf_fedml.Algorithm):
    """Sends a string to the server."""

    name = "WordyClient"

    def train_client(self, model: Any, task: Any) -> Any:
        return replace(super().train_client(model, task), payload={"thanks": "bye"})


class _Finishing(mrtf_fedml.Algorithm):
    reported: dict[str, Any] = {}  # noqa: RUF012
    predictions: dict[str, Any] = {}  # noqa: RUF012
    memory: dict[str, Any] = {}  # noqa: RUF012
    lost: str | None = None

    def server_update(self, state: Any, updates: Any, aggregated: Any, server: Any) -> Any:
        after, _ = super().server_update(state, updates, aggregated, server)
        weights = {name: value for name, value in after.prediction_weights.items() if name != self.lost}
        return replace(after, prediction_weights=weights, memory=self.memory), RoundReport(
            self.reported, self.predictions
        )


class Hoarder(_Finishing):
    name = "Hoarder"
    memory = {"things": {1, 2}}  # noqa: RUF012


class Vague(_Finishing):
    name = "Vague"
    reported = {"mood": "good"}  # noqa: RUF012


class Usurper(_Finishing):
    name = "Usurper"
    reported = {"round": 3}  # noqa: RUF012


class Guesser(_Finishing):
    name = "Guesser"
    predictions = {"guess": torch.zeros(3, 10)}  # noqa: RUF012


class Loser(_Finishing):
    name = "Loser"
    lost = "head.bias"


class Renamer(mrtf_fedml.Algorithm):
    name = "Renamer"

    def train_client(self, model: Any, task: Any) -> Any:
        update = super().train_client(model, task)
        return replace(update, weights={f"my.{name}": value for name, value in update.weights.items()})


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("Nameless", "needs a `name` of its own"),
        ("NoDefault", "'strength' of its Settings needs a default"),
        ("Colliding", "the key 'epochs' of its Settings"),
        ("Wordy", "must be tensors and numbers, but 'greeting' is a str"),
        ("WordyClient", "must be tensors and numbers, but 'thanks' is a str"),
        ("Hoarder", "memory 'things' is a set that cannot be saved"),
        ("Vague", "metric 'mood' is a str; it must be one number"),
        ("Usurper", "the metric 'round'"),
        ("Guesser", "predictions 'guess' cannot be scored"),
        (
            "Loser",
            "Loser.server_update returns: does not fit the model, as it lacks head.bias",
        ),
        ("Renamer", "what Renamer's train_client returns: does not fit the model, as it lacks body.1.weight"),
        ("Nobody", "has no 'Nobody'"),
        ("RoundReport", "is no algorithm; it must name a subclass"),
    ],
)
def test_invalid_algorithm_class_is_rejected(run_error: Callable[..., str], algorithm: str, sentence: str) -> None:
    assert sentence in run_error(extension_config(f"{HERE}:{algorithm}", comm_round=1))


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"stranger_args": {"pul": 1}}, "stranger_args has no key 'pul'; did you mean 'pull'?"),
        ({"stranger_args": {"voting": "loud"}}, "stranger_args.voting is 'loud'; it should be 'soft' or 'hard'"),
        ({"stranger_args": {"patience": "long"}}, "stranger_args.patience is 'long'; it should be a valid integer"),
        ({"dp_args": {"clip": 1.0, "sigma": 0.1}}, "Stranger sends visits, drift, doubt"),
        ({"mrtf_args": {"base": WANDERER}, "wanderer": {"share": 1}}, "wanderer has no key 'share'"),
    ],
)
def test_wrong_keys_of_algorithm_section_are_rejected(
    run_error: Callable[..., str], sections: dict[str, Any], sentence: str
) -> None:
    assert sentence in run_error(extension_config(STRANGER, sections, comm_round=1))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("stranger_args.pul=1", "stranger_args has no key 'pul'; did you mean 'pull'?"),
        ("stranger_arg.pull=1", "there is no section 'stranger_arg'; did you mean 'stranger_args'?"),
    ],
)
def test_wrong_overrides_are_rejected(run_error: Callable[..., str], change: str, sentence: str) -> None:
    assert sentence in run_error(extension_config(), "--set", change)


@pytest.mark.parametrize("algorithm", ["MrTF", "FedDF"])
def test_refining_algorithm_as_base_is_rejected(run_error: Callable[..., str], algorithm: str) -> None:
    config = extension_config("MrTF", base=algorithm)
    assert f"mrtf_args.base is {algorithm!r}, which refines already; name what" in run_error(config)


@pytest.mark.parametrize(
    ("callback", "sentence"),
    [
        ("NoCallback", "derive it from mrtf_fedml.Callback"),
        ("Demanding", "cannot be made without arguments"),
        ("Wordy", "'mood'"),
        ("Nobody", "has no 'Nobody'"),
    ],
)
def test_invalid_callback_is_rejected(run_error: Callable[..., str], callback: str, sentence: str) -> None:
    config = extension_config("FedAvg", comm_round=1, callbacks=[f"tests.extension.watching:{callback}"])
    assert sentence in run_error(config)


def test_callbacks_that_are_not_a_list_are_rejected(run_error: Callable[..., str]) -> None:
    sentence = run_error(extension_config("FedAvg", callbacks="tests.extension.watching:Watching"))
    assert "common_args.callbacks is 'tests.extension.watching:Watching'; it should be a valid list" in sentence


def test_registering_a_taken_name_is_rejected() -> None:
    impostor = type("Impostor", (mrtf_fedml.Algorithm,), {"name": "fedavg", "__module__": "elsewhere"})
    with pytest.raises(UserError, match=r"the name 'fedavg' is mrtf_fedml\.algorithms\.fedavg's already"):
        mrtf_fedml.register_algorithm(impostor)
