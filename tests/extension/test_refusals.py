"""Wrong algorithms and wrong callbacks: one sentence each, that names the thing and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import mrtf_fedml
from mrtf_fedml import RoundReport, UserError
from tests.extension.conftest import STRANGER, WANDERER, scene

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
    """Sends a text down."""

    name = "Wordy"

    def for_client(self, state: Any, client: int) -> Any:
        return {"greeting": "hello"}


class WordyClient(mrtf_fedml.Algorithm):
    """Sends a text up."""

    name = "WordyClient"

    def train_client(self, model: Any, task: Any) -> Any:
        return replace(super().train_client(model, task), extra={"thanks": "bye"})


class _Finishing(mrtf_fedml.Algorithm):
    metrics: dict[str, Any] = {}  # noqa: RUF012
    predictions: dict[str, Any] = {}  # noqa: RUF012
    memory: dict[str, Any] = {}  # noqa: RUF012
    lost: str | None = None

    def finish_round(self, state: Any, updates: Any, aggregated: Any, bench: Any) -> Any:
        after, _ = super().finish_round(state, updates, aggregated, bench)
        answer = {name: value for name, value in after.answer.items() if name != self.lost}
        return replace(after, answer=answer, memory=self.memory), RoundReport(self.metrics, self.predictions)


class Hoarder(_Finishing):
    name = "Hoarder"
    memory = {"things": {1, 2}}  # noqa: RUF012


class Vague(_Finishing):
    name = "Vague"
    metrics = {"mood": "good"}  # noqa: RUF012


class Usurper(_Finishing):
    name = "Usurper"
    metrics = {"round": 3}  # noqa: RUF012


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
        ("Colliding", "the key 'epochs' of its Settings means something else in train_args"),
        ("Wordy", "must be tensors and numbers, but 'greeting' is a str"),
        ("WordyClient", "must be tensors and numbers, but 'thanks' is a str"),
        ("Hoarder", "memory 'things' is a set that cannot be saved"),
        ("Vague", "metric 'mood' is a str; it must be one number"),
        ("Usurper", "measures 'round', which every run has already"),
        ("Guesser", "predictions 'guess' cannot be scored"),
        ("Loser", "the answer that Loser's finish_round returns: does not fit the model, as it lacks head.bias"),
        ("Renamer", "what Renamer's train_client returns: does not fit the model, as it lacks body.1.weight"),
        ("Nobody", "has no 'Nobody'"),
        ("RoundReport", "is no algorithm; it must name a subclass"),
    ],
)
def test_a_wrong_algorithm_is_told(told: Callable[..., str], algorithm: str, sentence: str) -> None:
    assert sentence in told(scene(f"{HERE}:{algorithm}", comm_round=1))


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"stranger_args": {"pul": 1}}, "stranger_args has no key 'pul'; did you mean 'pull'?"),
        ({"stranger_args": {"voting": "loud"}}, "stranger_args.voting is 'loud'; it should be 'soft' or 'hard'"),
        ({"stranger_args": {"patience": "long"}}, "stranger_args.patience is 'long'; it should be a valid integer"),
        ({"dp_args": {"clip": 1.0, "sigma": 0.1}}, "Stranger sends visits, drift, doubt beside the weights"),
        ({"mrtf_args": {"base": WANDERER}, "wanderer": {"share": 1}}, "wanderer has no key 'share'"),
    ],
)
def test_wrong_keys_are_told(told: Callable[..., str], sections: dict[str, Any], sentence: str) -> None:
    assert sentence in told(scene(STRANGER, sections, comm_round=1))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("stranger_args.pul=1", "stranger_args has no key 'pul'; did you mean 'pull'?"),
        ("stranger_arg.pull=1", "there is no section 'stranger_arg'; did you mean 'stranger_args'?"),
    ],
)
def test_wrong_changes_are_told(told: Callable[..., str], change: str, sentence: str) -> None:
    assert sentence in told(scene(), "--set", change)


@pytest.mark.parametrize("algorithm", ["MrTF", "FedDF"])
def test_what_refines_already_is_no_base(told: Callable[..., str], algorithm: str) -> None:
    config = scene("MrTF", base=algorithm)
    assert f"mrtf_args.base is {algorithm!r}, which refines already; name what" in told(config)


@pytest.mark.parametrize(
    ("callback", "sentence"),
    [
        ("NoCallback", "is no callback; derive it from mrtf_fedml.Callback"),
        ("Demanding", "cannot be made without arguments"),
        ("Wordy", "a callback has put 'mood', a Tensor, into the round's line"),
        ("Nobody", "has no 'Nobody'"),
    ],
)
def test_a_wrong_callback_is_told(told: Callable[..., str], callback: str, sentence: str) -> None:
    config = scene("FedAvg", comm_round=1, callbacks=[f"tests.extension.watching:{callback}"])
    assert sentence in told(config)


def test_callbacks_that_are_no_list_are_told(told: Callable[..., str]) -> None:
    sentence = told(scene("FedAvg", callbacks="tests.extension.watching:Watching"))
    assert "common_args.callbacks is 'tests.extension.watching:Watching'; it should be a valid list" in sentence


def test_a_name_that_is_taken_is_told() -> None:
    impostor = type("Impostor", (mrtf_fedml.Algorithm,), {"name": "fedavg", "__module__": "elsewhere"})
    with pytest.raises(UserError, match=r"the name 'fedavg' is mrtf_fedml\.algorithms\.fedavg's already"):
        mrtf_fedml.register_algorithm(impostor)
