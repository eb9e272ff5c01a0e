"""The agreement of server and silos: all differences are named."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from mrtf_fedml.config import PrivacySettings
from mrtf_fedml.fedml_bridge.backends.cross_silo.handshake import Handshake


def handshake(*features: str) -> Handshake:
    dataset = SimpleNamespace(class_names=["ill", "well"], features=list(features) or None)
    return Handshake.create({"w": torch.zeros(2)}, dataset, PrivacySettings())


def test_handshake_names_the_feature_that_a_silo_lacks_or_adds() -> None:
    server = handshake("age", "ward=A")
    assert server.find_differences(handshake("age", "ward=A").to_dict(), 1) == {}
    assert "lacks 'ward=A'" in str(server.find_differences(handshake("age", "ward=B").to_dict(), 1))
    assert "'weight', which the server lacks" in str(
        server.find_differences(handshake("age", "ward=A", "weight").to_dict(), 1)
    )
    assert "order" in str(server.find_differences(handshake("ward=A", "age").to_dict(), 1))


def test_handshake_of_a_party_without_feature_names_is_accepted() -> None:
    assert handshake("age").find_differences(handshake().to_dict(), 1) == {}
    assert handshake().find_differences(handshake("age").to_dict(), 1) == {}


def test_handshake_with_invalid_features_is_a_mismatch() -> None:
    for features in ({"a": 1}, "age", [["age"]]):
        assert handshake("age").find_differences({**handshake("age").to_dict(), "features": features}, 1) != {}


def with_encoder(digest: str | None, width: int = 3) -> Handshake:
    weights = {"weight": torch.zeros(2, width)}
    dataset = SimpleNamespace(class_names=["a", "b"], encoder_digest=digest)
    return Handshake.create(weights, dataset, PrivacySettings())


def test_equal_encoders_match() -> None:
    assert with_encoder("a" * 64).find_differences(with_encoder("a" * 64).to_dict(), silo=1) == {}
    assert with_encoder(None).find_differences(with_encoder(None).to_dict(), silo=1) == {}


def test_other_or_missing_encoder_is_named_before_the_other_width_of_the_model() -> None:
    wider = with_encoder("a" * 64).find_differences(with_encoder("b" * 64, width=4).to_dict(), silo=2)
    assert list(wider) == ["encoder", "model"]
    assert "encoder of silo 2" in wider["encoder"]
    assert list(with_encoder("a" * 64).find_differences(with_encoder(None).to_dict(), silo=2)) == ["encoder"]


def test_equal_encoder_that_gives_another_number_of_features_is_named() -> None:
    wider = with_encoder("a" * 64).find_differences(with_encoder("a" * 64, width=4).to_dict(), silo=2)
    assert list(wider) == ["model"]
    assert "encoder" in wider["model"]


def test_every_difference_has_a_sentence() -> None:
    server = Handshake.create({"w": torch.zeros(2)}, SimpleNamespace(class_names=["a", "b"]), PrivacySettings())
    other = SimpleNamespace(class_names=["b", "a"])
    silo = Handshake.create({"w": torch.zeros(3)}, other, PrivacySettings(clip=1.0)).to_dict()
    found = server.find_differences({**silo, "version": "0.0.9"}, 1)
    assert set(found) == {"version", "model", "class_names", "privacy"}
    assert "'0.0.9'" in found["version"]
    assert server.find_differences("no mapping", 1).keys() >= {"version", "model"}
