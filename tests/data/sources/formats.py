"""Small files in the formats of the datasets."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import io as matlab

from mrtf_fedml.config import DataSettings


def settings(folder: Path, dataset: str, **keys: Any) -> DataSettings:
    return DataSettings(dataset=dataset, data_cache_dir=str(folder), **keys)


def random_images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path, train: int = 30, test: int = 10, zipped: bool = False) -> dict[str, np.ndarray]:
    """The four idx files; returns what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, samples in (("train", train), ("t10k", test)):
        arrays[f"{part}-images-idx3-ubyte"] = random_images(samples, 28, 28, seed=samples)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(samples) % 10).astype(np.uint8)
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)
    return arrays


def write_svhn(folder: Path, train: int = 30, test: int = 10) -> dict[str, np.ndarray]:
    """Two .mat files with the digit 0 written as 10; returns the images as N, 32, 32, 3."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {}
    for part, samples in (("train", train), ("test", test)):
        images[part] = random_images(samples, 32, 32, 3, seed=samples)
        digits = (np.arange(samples) % 10).astype(np.uint8)
        digits[digits == 0] = 10
        content = {"X": images[part].transpose(1, 2, 3, 0), "y": digits[:, None]}
        matlab.savemat(folder / f"{part}_32x32.mat", content, do_compression=True)
    return images


def cifar_batch(samples: int, classes: int, key: str, seed: int = 0) -> dict[bytes, Any]:
    """A batch with keys in bytes, as Python 2 wrote it."""
    return {
        b"batch_label": b"a batch",
        key.encode(): [number % classes for number in range(samples)],
        b"data": random_images(samples, 3072, seed=seed),
        b"filenames": [b"leptodactylus_pentadactylus_s_000004.png"] * samples,
    }


def write_cifar10(folder: Path, samples: int = 20) -> list[dict[bytes, Any]]:
    """cifar-10-batches-py, with two training batches; returns those and the test batch."""
    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True)
    batches = [cifar_batch(samples, 10, "labels", seed) for seed in range(3)]
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    for name, content in zip(("data_batch_1", "data_batch_2", "test_batch"), batches, strict=True):
        (place / name).write_bytes(pickle.dumps(content, 2))
    (place / "batches.meta").write_bytes(pickle.dumps({b"label_names": names, b"num_vis": 3072}, 2))
    (place / "readme.html").write_text("<meta HTTP-EQUIV='REFRESH'>")
    return batches


def write_cifar100_archive(folder: Path, samples: int = 200) -> dict[str, dict[bytes, Any]]:
    """cifar-100-python.tar.gz, not unpacked."""
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {
        "train": cifar_batch(samples, 100, "fine_labels", 1) | {b"coarse_labels": [0] * samples},
        "test": cifar_batch(100, 100, "fine_labels", 2) | {b"coarse_labels": [0] * 100},
        "meta": {
            b"fine_label_names": [f"fine {n}".encode() for n in range(100)],
            b"coarse_label_names": [b"fish"] * 20,
        },
    }
    with tarfile.open(folder / "cifar-100-python.tar.gz", "w:gz") as tar:
        for name, content in contents.items():
            packed = pickle.dumps(content, 2)
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(packed)
            tar.addfile(member, io.BytesIO(packed))
    return contents


def write_usps(folder: Path, train: int = 20, test: int = 10) -> dict[str, np.ndarray]:
    """LIBSVM's text, packed: labels 1 to 10, values -1 to 1."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {}
    for name, samples in (("usps.bz2", train), ("usps.t.bz2", test)):
        images[name] = random_images(samples, 16, 16, seed=samples)
        rows = images[name].reshape(samples, -1) / 127.5 - 1
        lines = [
            f"{row % 10 + 1} " + " ".join(f"{place + 1}:{value:.6g}" for place, value in enumerate(values)) + " \n"
            for row, values in enumerate(rows)
        ]
        (folder / name).write_bytes(bz2.compress("".join(lines).encode()))
    return images


def write_leaf(folder: Path, part: str, number: int, users: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    """One of LEAF's files, with the name that LEAF gives it."""
    place = folder / part
    place.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path = place / f"all_data_{number}_niid_0_keep_0_{part}_9.json"
    path.write_text(json.dumps(content))
    return path


def letters(samples: int, seed: int) -> tuple[list[list[float]], list[int]]:
    """A writer of FEMNIST: bytes divided by 255, white where there is no ink."""
    images = random_images(samples, 784, seed=seed)
    return (images / 255).tolist(), [(seed + number) % 62 for number in range(samples)]


def write_femnist(folder: Path, writers: int = 10, samples: int = 12) -> None:
    """Two files a part."""
    for part, each in (("train", samples), ("test", samples // 3)):
        for number in range(2):
            names = [f"f{writer:04d}_14" for writer in range(number, writers, 2)]
            write_leaf(folder, part, number, {name: letters(each, int(name[1:5])) for name in names})


def write_image(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
