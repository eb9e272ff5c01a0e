"""Memory allocator, garbage collector and CPU instructions."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrtf_fedml.process import tuning
from mrtf_fedml.process.tuning import (
    amx_is_unusable,
    cpuinfo_hides_amx_tiles,
    disable_unusable_amx,
    pause_garbage_collector,
)

_COPIES = """
import resource
import torch
from mrtf_fedml.process.tuning import keep_freed_memory

torch.set_num_threads(1)
kept = {call}
model = torch.ones(2_000_000)


def make_updates():
    # The updates of a round exist at the same time and are freed together.
    return len([model.clone() for _ in range(12)])


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


for _ in range(4):
    make_updates()
before = faults()
for _ in range(5):
    make_updates()
print(kept, faults() - before)
"""


def run_copies(call: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _COPIES.format(call=call)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_keep_freed_memory_reuses_pages() -> None:
    kept, faults = run_copies("keep_freed_memory()")
    assert kept == "True"
    # 12 copies of 8 MB, five times: 117,000 pages, almost all of which are reused if the heap is kept.
    assert int(faults) < 5000


def test_keep_freed_memory_returns_memory_if_user_set_threshold() -> None:
    # Blocks of more than 128 kB are mapped alone and returned when they are freed.
    kept, faults = run_copies("keep_freed_memory()", MALLOC_MMAP_THRESHOLD_="131072")
    assert kept == "False"
    assert int(faults) > 100_000


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_keep_freed_memory_respects_user_variables(variable: str) -> None:
    value = {"MALLOC_TRIM_THRESHOLD_": "131072", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}[variable]
    kept, _ = run_copies("keep_freed_memory()", **{variable: value})
    assert kept == "False"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


class _Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_pause_garbage_collector_excludes_imported_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_heavy_module.py").write_text("values = [[number] for number in range(100_000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    frozen = gc.get_freeze_count()
    with pause_garbage_collector():
        import a_heavy_module  # type: ignore[import-not-found]

        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(a_heavy_module.values)
    del sys.modules["a_heavy_module"]


def test_pause_garbage_collector_collects_later_garbage() -> None:
    with pause_garbage_collector():
        pass
    gone = weakref.ref(_Ring())
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_pause_garbage_collector_without_import_excludes_nothing() -> None:
    frozen = gc.get_freeze_count()
    with pause_garbage_collector():
        import json  # noqa: F401
    assert gc.get_freeze_count() == frozen


def test_pause_garbage_collector_keeps_disabled_collector() -> None:
    gc.disable()
    with pause_garbage_collector():
        pass
    assert not gc.isenabled()


def test_pause_garbage_collector_enables_after_failed_import() -> None:
    with pytest.raises(ImportError), pause_garbage_collector():
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_pause_garbage_collector_unfreezes_at_exit(tmp_path: Path) -> None:
    (tmp_path / "a_module.py").write_text("")
    program = (
        "import atexit, gc\n"
        "from mrtf_fedml.process.tuning import pause_garbage_collector\n"
        "atexit.register(lambda: print('left out at the end:', gc.get_freeze_count()))\n"
        "with pause_garbage_collector():\n"
        "    import a_module\n"
        "print('left out:', gc.get_freeze_count() > 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["left out: True", "left out at the end: 0"]


CLAIMED = "processor\t: 0\ncpuid level\t: {level}\nflags\t\t: fpu avx512_bf16 {flags}\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("level", "flags", "hidden"),
    [("28", "amx_tile amx_bf16", True), ("29", "amx_tile", False), ("22", "amx_tiles", False), ("", "amx_tile", False)],
)
def test_cpuinfo_hides_amx_tiles_if_flag_without_leaf(level: str, flags: str, hidden: bool) -> None:
    assert cpuinfo_hides_amx_tiles(CLAIMED.format(level=level, flags=flags)) is hidden


def test_disable_unusable_amx_only_if_hidden_and_not_set_by_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(tuning, "_CPUINFO", cpuinfo)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    for text in (None, "flags: fpu", CLAIMED.format(level="32", flags="amx_tile")):
        if text is not None:
            cpuinfo.write_text(text)
        disable_unusable_amx()
        assert not amx_is_unusable()
        assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    cpuinfo.write_text(CLAIMED.format(level="28", flags="amx_tile"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    disable_unusable_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "SSE41"
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    disable_unusable_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert not tuning.has_fast_bf16()


def test_bfloat16_product_after_import_does_not_crash() -> None:
    program = (
        "import torch, mrtf_fedml; from torch.nn.functional import conv2d; a = torch.ones(64, 64).bfloat16();"
        "kernels = torch.ones(16, 16, 3, 3).bfloat16(); print(float((a @ a).sum()));"
        "print(float(conv2d(a.view(1, 16, 16, 16), kernels)[0, 0, 0, 0]))"
    )
    free = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", program], env=free, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["262144.0", "144.0"]), done.stderr
