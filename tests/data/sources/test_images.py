"""Image folders of the clients and the server."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mrtf_fedml.config import DataSettings
from mrtf_fedml.data import load_source
from mrtf_fedml.data.sources.source import Source
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import random_images, write_image


def write_folders(folder: Path, *shape: int) -> None:
    for position, name in enumerate(("dog", "cat", "ant")):
        for number in range(4):
            write_image(folder / "clients" / name / f"{number}.png", random_images(*shape, seed=10 * position + number))
    for number in range(5):
        write_image(folder / "server" / f"photo {number}.png", random_images(*shape, seed=100 + number))


def load(folder: Path, **keys: Any) -> Source:
    keys = {"data_file": str(folder / "clients"), "server_file": str(folder / "server"), **keys}
    return load_source(DataSettings(dataset="images", **keys))


@pytest.mark.parametrize("shape", [(8, 6), (8, 6, 3)])
def test_image_classes_are_folders_and_ids_are_file_names(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_folders(tmp_path, *shape)
    source = load(tmp_path)
    assert source.x_train.shape == (12, *shape)
    assert source.class_names == ["ant", "cat", "dog"]
    assert source.y_train.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (source.x_train[0] == random_images(*shape, seed=20)).all()
    assert source.ids == [f"photo {number}.png" for number in range(5)]
    assert (source.x_test[4] == random_images(*shape, seed=104)).all()
    assert source.y_test is None


def test_images_are_resized_to_most_frequent_or_configured_size(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    write_image(tmp_path / "clients/cat/large.jpg", random_images(40, 30))
    write_image(tmp_path / "server/large.bmp", random_images(16, 12))
    assert load(tmp_path).x_train.shape == (13, 8, 6)
    assert load(tmp_path).x_test.shape == (6, 8, 6)
    assert load(tmp_path, image_size=10).x_train.shape == (13, 10, 10)


def test_one_colour_image_converts_all_to_colour(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    write_image(tmp_path / "clients/cat/colour.png", random_images(8, 6, 3))
    assert load(tmp_path).x_train.shape == (13, 8, 6, 3)
    assert load(tmp_path).x_test.shape == (5, 8, 6, 3)


def test_other_pillow_modes_are_converted(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    deep = np.full((8, 6), 40000, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "server/deep.png")
    Image.fromarray(random_images(8, 6)).convert("P").save(tmp_path / "server/palette.gif")
    Image.fromarray(random_images(8, 6, 4)).save(tmp_path / "server/see-through.png")
    source = load(tmp_path)
    assert (source.x_test[source.ids.index("deep.png")] == 40000 >> 8).all()


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    upright = random_images(8, 6)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(upright)).save(tmp_path / "server/turned.png", exif=exif)
    source = load(tmp_path)
    assert (source.x_test[source.ids.index("turned.png")] == upright).all()


def test_server_subfolders_named_after_classes_give_labels(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    for name in ("cat", "dog"):
        write_image(tmp_path / "test" / name / "x.png", random_images(8, 6))
    source = load(tmp_path, server_file=str(tmp_path / "test"))
    assert source.ids == ["cat/x.png", "dog/x.png"]
    assert source.y_test is not None
    assert source.y_test.tolist() == [1, 2]


def test_hidden_and_other_files_are_ignored(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    (tmp_path / "clients/cat/Thumbs.db").write_bytes(b"x")
    (tmp_path / "server/.DS_Store.png").write_bytes(b"x")
    (tmp_path / "clients/.cache").mkdir()
    source = load(tmp_path)
    assert (len(source.x_train), len(source.x_test), source.class_num) == (12, 5, 3)


def test_skipped_files_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_folders(tmp_path, 8, 6)
    with caplog.at_level(logging.WARNING, logger="mrtf_fedml"):
        load(tmp_path)
        assert caplog.messages == []
        (tmp_path / "clients/cat/one.heic").write_bytes(b"x")
        (tmp_path / "clients/loose.png").write_bytes(b"x")
        (tmp_path / "server/gone.png").symlink_to("nowhere")
        (tmp_path / "server/drawing.svg").write_bytes(b"x")
        (tmp_path / "server/Thumbs.db").write_bytes(b"x")
        load(tmp_path)
    assert [line.rpartition(": ")[2] for line in caplog.messages] == [
        "one.heic",
        "loose.png",
        "drawing.svg, gone.png",
    ]
    assert "not in the subfolder of a class" in caplog.messages[1]


def test_folder_removed_while_listed_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folders(tmp_path, 8, 6)
    listing = Path.rglob

    def vanishing(folder: Path, pattern: str) -> Iterator[Path]:
        for path in listing(folder, pattern):
            yield path
            shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr(Path, "rglob", vanishing)
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert "cat" in str(caught.value) or "clients" in str(caught.value)


@pytest.mark.parametrize("place", ["clients/cat", "server"])
@pytest.mark.parametrize("keep", [0, 30, -40])
def test_corrupt_image_is_named(tmp_path: Path, place: str, keep: int) -> None:
    write_folders(tmp_path, 30, 20)
    path = next((tmp_path / place).iterdir())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert f"image {str(path)!r} cannot be read" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_empty_image_folders_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data_args.data_file"):
        load(tmp_path, data_file=None)
    with pytest.raises(UserError, match=r"clients' does not exist; set data_args.data_file"):
        load(tmp_path)
    (tmp_path / "clients").mkdir()
    (tmp_path / "server").mkdir()
    with pytest.raises(UserError, match="has no subfolder; put the images of each class"):
        load(tmp_path)
    (tmp_path / "clients/cat").mkdir()
    with pytest.raises(UserError, match="has no image in its subfolders"):
        load(tmp_path)
    write_image(tmp_path / "clients/cat/a.png", random_images(4, 4))
    with pytest.raises(UserError, match=r"server' has no image for the server"):
        load(tmp_path)
    with pytest.raises(UserError, match=r"data_args.server_file"):
        load(tmp_path, server_file=None)
    write_image(tmp_path / "server/a.png", random_images(4, 4))
    with pytest.raises(UserError, match="a classifier needs at least two"):
        load(tmp_path)
    with pytest.raises(UserError, match="is a file, not a folder"):
        load(tmp_path, data_file=str(tmp_path / "server/a.png"))


@pytest.mark.parametrize("place", ["clients/cat", "server"])
@pytest.mark.parametrize(("kind", "sentence"), [(np.float32, "floating-point"), (np.int32, "32-bit integers")])
def test_pixels_without_a_scale_raise(tmp_path: Path, place: str, kind: Any, sentence: str) -> None:
    write_folders(tmp_path, 8, 6)
    path = tmp_path / place / "deep.tif"
    Image.fromarray(np.linspace(0, 1, 48).reshape(8, 6).astype(np.float32).astype(kind)).save(path)
    with pytest.raises(UserError, match=f"its pixels are {sentence}"):
        load(tmp_path)


def test_sixteen_bit_images_are_scaled_in_every_format(tmp_path: Path) -> None:
    write_folders(tmp_path, 8, 6)
    deep = np.linspace(0, 65535, 48).reshape(8, 6).astype(np.uint16)
    for suffix in ("png", "tif", "pgm"):
        Image.fromarray(deep).save(tmp_path / "server" / f"deep.{suffix}")
    source = load(tmp_path)
    for suffix in ("png", "tif", "pgm"):
        assert (source.x_test[source.ids.index(f"deep.{suffix}")] == deep >> 8).all()


def test_image_of_unsupported_format_raises(tmp_path: Path) -> None:
    """Pillow hands PostScript to another program, whatever the file's name is."""
    write_folders(tmp_path, 8, 6)
    Image.new("RGB", (6, 8)).save(tmp_path / "image.eps")
    (tmp_path / "image.eps").rename(tmp_path / "server/photo.png")
    with pytest.raises(UserError, match=r"photo.png' cannot be read \(cannot identify image file"):
        load(tmp_path)
