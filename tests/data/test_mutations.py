"""Truncated, changed and extended dataset files: samples or a one-line error, never a traceback."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mrtf_fedml.data import Source, to_tensor
from mrtf_fedml.data.sources.safe_pickle import load_pickle
from mrtf_fedml.errors import UserError
from tests.data.sources.formats import write_leaf
from tests.data.sources.hostility import FEW, FEWER
from tests.data.sources.places import PLACES

#: What often means something: nothing, all, the largest numbers of either sign, brackets, digits, ends of lines.
TELLING = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"((((", b"9999", b"\n", b"-"]

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["cut", "drop", "flip", "put", "repeat"]),
        # Half of them near the beginning, where the headers are.
        st.integers(0, 80) | st.integers(0, 1_000_000),
        st.sampled_from(TELLING) | st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=4,
)


def apply_changes(content: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for kind, place, extra in changes:
        at = place % (len(content) + 1)
        before, after = content[:at], content[at:]
        content = {
            "cut": before,
            "drop": before + after[len(extra) :],
            "flip": before + bytes(a ^ b for a, b in zip(after, extra, strict=False)) + after[len(extra) :],
            "put": before + extra + after,
            "repeat": before + after[:100] + after,
        }[kind]
    return content


def check(outcome: Source | str) -> None:
    """Samples that a run could take: of one shape, finite, with classes that exist and names that can be written."""
    if isinstance(outcome, str):
        return
    assert outcome.x_train.shape[1:] == outcome.x_test.shape[1:]
    assert to_tensor(outcome.x_train, outcome.tokens).isfinite().all()
    assert to_tensor(outcome.x_test, outcome.tokens).isfinite().all()
    assert outcome.y_train.shape == (len(outcome.x_train),)
    assert 0 <= outcome.y_train.min() <= outcome.y_train.max() < outcome.class_num
    assert len(outcome.ids) == len(outcome.x_test)
    assert all(len(name.encode().decode().splitlines()) <= 1 for name in [*outcome.ids, *outcome.class_names])


@pytest.mark.parametrize("name", PLACES)
def test_mutated_file_gives_samples_or_one_line_error(tmp_path: Path, name: str) -> None:
    place = PLACES[name]
    place.write(tmp_path)
    whole = (tmp_path / place.file).read_bytes()

    @FEWER
    @given(CHANGES)
    def try_out(changes: list[tuple[str, int, bytes]]) -> None:
        (tmp_path / place.file).write_bytes(apply_changes(whole, changes))
        check(place.outcome(tmp_path))

    try_out()


NUMBERS = arrays.scalar_dtypes() | arrays.unicode_string_dtypes(max_len=3) | arrays.byte_string_dtypes(max_len=3)
ANY_ARRAY = arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
KEYS = ("x_train", "y_train", "x_test", "y_test", "class_names", "ids", "u_train", "u_test", "alphabet")


@FEW
@given(st.dictionaries(st.sampled_from(KEYS), ANY_ARRAY, max_size=3), st.booleans())
def test_any_npz_array_gives_samples_or_one_line_error(tmp_path: Path, strange: dict[str, Any], labelled: bool) -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    own = {"x_train": x, "y_train": np.arange(6) % 2, "x_test": x[:2]} | ({"y_test": [0, 1]} if labelled else {})
    np.savez(tmp_path / "own.npz", **(own | strange))
    check(PLACES["npz"].outcome(tmp_path))


CELL = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.sampled_from(["", "1", "-1e3", "nan", "01"])


@FEW
@given(st.lists(st.lists(CELL, min_size=1, max_size=4), min_size=1, max_size=4), st.sampled_from(",;\t\r"))
def test_any_csv_gives_samples_or_one_line_error(tmp_path: Path, rows: list[list[str]], comma: str) -> None:
    PLACES["csv-clients"].write(tmp_path)
    text = "a,label\n" + "\n".join(comma.join(row) for row in rows)
    (tmp_path / "clients.csv").write_bytes(text.encode())
    (tmp_path / "server.csv").write_text("a\n1\n")
    check(PLACES["csv-clients"].outcome(tmp_path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@FEWER
@given(st.sampled_from(["femnist", "shakespeare"]), st.lists(JSON, max_size=3), st.lists(JSON, max_size=3))
def test_any_leaf_user_gives_samples_or_one_line_error(tmp_path: Path, name: str, x: list[Any], y: list[Any]) -> None:
    place, folder = PLACES[name], tmp_path / name
    if not folder.exists():
        folder.mkdir()
        place.write(folder)
    write_leaf(folder, Path(place.file).parts[0], 0, {"a": (x, y)})
    check(place.outcome(folder))


THINGS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@FEW
@given(THINGS, st.integers(0, 5))
def test_plain_values_are_unpickled_unchanged(thing: Any, protocol: int) -> None:
    assert load_pickle(pickle.dumps(thing, protocol), Path("things")) == thing


@FEW
@given(
    arrays.arrays(
        arrays.boolean_dtypes() | arrays.integer_dtypes() | arrays.unsigned_integer_dtypes() | arrays.floating_dtypes(),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    st.integers(2, 5),
)
def test_arrays_are_unpickled_unchanged(array: np.ndarray, protocol: int) -> None:
    for given_array in (array, np.asfortranarray(array)):
        loaded = load_pickle(pickle.dumps({"a": given_array}, protocol), Path("arrays"))["a"]
        assert loaded.dtype == array.dtype
        assert np.array_equal(loaded, given_array, equal_nan=array.dtype.kind == "f")


#: Instructions of a pickle, with numbers and names after them as they come.
INSTRUCTIONS = st.lists(
    st.sampled_from([bytes([code]) for code in b"(.012IJKLMNRSTUVXabcdeghijlopqrstu}])"])
    | st.sampled_from([b"\x80\x04", b"\x85", b"\x86", b"\x87", b"\x88", b"\x8c\x01a", b"\x93", b"\x94", b"\x96"])
    | st.sampled_from([b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"cbuiltins\nlist\n"])
    | st.sampled_from([b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy.core.multiarray\nscalar\n"])
    | st.sampled_from([b"K\x01", b"X\x02\x00\x00\x00u1", b"r\xff\xff\xff\x7f", b"h\x00", b"q\x00"])
    | st.builds(struct.pack, st.just("<I"), st.integers(0, 2**32 - 1)),
    max_size=25,
)


@FEW
@given(INSTRUCTIONS)
def test_any_pickle_program_gives_values_or_one_line_error(program: list[bytes]) -> None:
    message = "things"
    try:
        load_pickle(b"".join(program) + b".", Path("program"))
    except UserError as error:
        message = str(error)
    assert len(message.splitlines()) == 1
