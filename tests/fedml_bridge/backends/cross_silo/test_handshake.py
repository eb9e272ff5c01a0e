"""The agreement of server and silos on a table's features and on the encoder."""

from __future__ import annotations

import torch

from mrtf_fedml.config import PrivacySettings
from mrtf_fedml.fedml_bridge.backends.cross_silo.handshake import Handshake


def handshake(*features: str) -> Handshake:
    return Handshake.create({"w": torch.zeros(2)}, ["ill", "well"], list(features) or None, PrivacySettings())


def test_handshake_names_the_feature_that_a_silo_lacks_or_adds() -> None:
    server = handshake("age", "ward=A")
    assert server.find_mismatch(handshake("age", "ward=A").to_dict(), 1) is None
    assert "lacks 'ward=A'" in str(server.find_mismatch(handshake("age", "ward=B").to_dict(), 1))
    assert "'weight', which the server lacks" in str(
        server.find_mismatch(handshake("age", "ward=A", "weight").to_dict(), 1)
    )
    assert "order" in str(server.find_mismatch(handshake("ward=A", "age").to_dict(), 1))


def test_handshake_of_a_party_without_feature_names_is_accepted() -> None:
    assert handshake("age").find_mismatch(handshake().to_dict(), 1) is None
    assert handshake().find_mismatch(handshake("age").to_dict(), 1) is None


def test_handshake_with_invalid_features_is_a_mismatch() -> None:
    for features in ({"a": 1}, "age", [["age"]]):
        assert handshake("age").find_mismatch({**handshake("age").to_dict(), "features": features}, 1) is not None


def with_encoder(digest: str | None, width: int = 3) -> Handshake:
    weights = {"weight": torch.zeros(2, width)}
    return Handshake.create(weights, ["a", "b"], None, PrivacySettings(), digest)


def test_equal_encoders_match() -> None:
    assert with_encoder("a" * 64).find_mismatch(with_encoder("a" * 64).to_dict(), silo=1) is None
    assert with_encoder(None).find_mismatch(with_encoder(None).to_dict(), silo=1) is None


def test_other_or_missing_encoder_is_named_before_the_other_width_of_the_model() -> None:
    for received in (with_encoder("b" * 64, width=4), with_encoder(None)):
        assert "encoder of silo 2" in str(with_encoder("a" * 64).find_mismatch(received.to_dict(), silo=2))
