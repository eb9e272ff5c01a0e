"""`Encoder` and its cache: batches, order, unusable features, and what is encoded again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mrtf_fedml.encoders import Encoder, cache
from mrtf_fedml.encoders.encoder import BATCH_SIZE, make_digest
from mrtf_fedml.errors import UserError

from .tiny import broken, letters


class Counting:
    """A function that counts its batches."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.sizes: list[int] = []

    def __call__(self, batch: Any) -> Any:
        self.sizes.append(len(batch))
        return self.function(batch)


def encoder_of(function: Callable[[Any], Any], digest: str = "d", **fields: Any) -> Encoder:
    return Encoder("tiny:function", digest, fields.pop("reads", "any"), lambda: function, **fields)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_encoder_works_in_batches_and_keeps_the_order() -> None:
    function = Counting(lambda batch: batch * 2)
    samples = torch.randn(2 * BATCH_SIZE + 3, 4)
    assert torch.equal(encoder_of(function)(samples), samples * 2)
    assert function.sizes == [BATCH_SIZE, BATCH_SIZE, 3]


def test_texts_of_similar_length_share_a_batch_and_keep_their_order() -> None:
    texts = np.array(["a" * (1 + 37 * index % 101) for index in range(3 * BATCH_SIZE)], dtype=object)
    seen: list[list[str]] = []
    features = encoder_of(lambda batch: (seen.append(batch), letters(batch))[1])(texts)
    assert features[:, 0].tolist() == [len(text) for text in texts]
    lengths = [len(text) for batch in seen for text in batch]
    assert lengths == sorted(lengths)


def test_same_samples_are_encoded_once_on_a_machine() -> None:
    function, samples = Counting(lambda batch: batch + 1), torch.randn(100, 3)
    first = encoder_of(function)(samples)
    assert torch.equal(encoder_of(function)(samples.clone()), first)
    assert sum(function.sizes) == 100


@pytest.mark.parametrize("change", ["encoder", "samples", "threads"])
def test_other_encoder_samples_or_threads_are_encoded_again(change: str) -> None:
    function, samples, threads = Counting(lambda batch: batch + 1), torch.randn(100, 3), torch.get_num_threads()
    encoder_of(function)(samples)
    try:
        if change == "threads":
            torch.set_num_threads(threads + 1)
        other = samples + 1 if change == "samples" else samples
        encoder_of(function, digest="e" if change == "encoder" else "d")(other)
    finally:
        torch.set_num_threads(threads)
    assert sum(function.sizes) == 200


def test_damaged_cache_file_is_encoded_again_and_repaired() -> None:
    function, samples = Counting(lambda batch: batch + 1), torch.randn(100, 3)
    first = encoder_of(function)(samples)
    (file,) = cache.cache_folder().glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:50])
    assert torch.equal(encoder_of(function)(samples), first)
    encoder_of(function)(samples)
    assert sum(function.sizes) == 200


def test_cache_removes_the_features_used_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [torch.randn(100, 3) for _ in range(3)]
    monkeypatch.setattr(cache, "MAX_BYTES", 3000)
    function = Counting(lambda batch: batch + 1)
    for samples in [sets[0], sets[1], sets[0], sets[2]]:
        encoder_of(function)(samples)
    assert sum(function.sizes) == 300
    encoder_of(function)(sets[0])
    assert sum(function.sizes) == 300, "it was used after the second"
    encoder_of(function)(sets[1])
    assert sum(function.sizes) == 400


def test_cache_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    samples = torch.randn(100, 3)
    assert torch.equal(encoder_of(lambda batch: batch + 1)(samples), samples + 1)


def test_features_that_are_not_finite_are_an_error_that_names_the_first_sample() -> None:
    def function(batch: torch.Tensor) -> torch.Tensor:
        return torch.where(batch == 70, float("nan"), batch)

    with pytest.raises(UserError, match=r"tiny:function.*sample 70"):
        encoder_of(function)(torch.arange(100.0).reshape(100, 1))
    with pytest.raises(UserError, match="sample 0"):
        encoder_of(broken)(torch.zeros(3, 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: batch.sum(),
        lambda batch: batch[:1],
        lambda batch: batch[:, :0],
        lambda batch: "features",
        lambda batch: batch[:, : 1 + len(batch) % 2],
    ],
)
def test_encoder_without_one_row_of_equal_width_per_sample_is_an_error(function: Callable[[Any], Any]) -> None:
    with pytest.raises(UserError, match="tiny:function"):
        encoder_of(function)(torch.randn(BATCH_SIZE + 3, 4))


def test_other_width_for_another_set_of_samples_is_an_error() -> None:
    encoder = encoder_of(lambda batch: batch[:, : len(batch)])
    encoder(torch.randn(3, 4))
    with pytest.raises(UserError, match=r"tiny:function.* 2 .* 3 "):
        encoder(torch.randn(2, 4))


@pytest.mark.parametrize(
    ("reads", "samples"),
    [("images", torch.zeros(2, 5)), ("images", np.array(["a"])), ("text", torch.zeros(2, 3, 4, 4))],
)
def test_samples_of_another_kind_are_an_error(reads: Any, samples: Any) -> None:
    with pytest.raises(UserError, match=f"reads {reads if reads == 'images' else 'texts'}"):
        encoder_of(lambda batch: batch, reads=reads)(samples)


def test_digest_changes_with_one_byte_of_a_file_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "part").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(1000))
    (folder / "part" / "config.json").write_text("{}")
    before = make_digest("name", folder)
    (folder / "README.md").write_text("a description")
    assert make_digest("name", folder) == before
    (folder / "weights").write_bytes(bytes(500) + b"\x01" + bytes(499))
    assert make_digest("name", folder) != before
