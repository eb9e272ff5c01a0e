"""A machine that claims AMX and hides the size of its tiles: it is found out, and bfloat16 ends no process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrtf_fedml.process import instructions
from mrtf_fedml.process.instructions import half_hidden, leave_hidden_tiles_alone, tiles_are_half_hidden

CLAIMED = "processor\t: 0\ncpuid level\t: {level}\nflags\t\t: fpu avx512_bf16 {flags}\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("level", "flags", "hidden"),
    [("28", "amx_tile amx_bf16", True), ("29", "amx_tile", False), ("22", "amx_tiles", False), ("", "amx_tile", False)],
)
def test_tiles_are_half_hidden_where_they_are_claimed_and_their_page_is_not_there(
    level: str, flags: str, hidden: bool
) -> None:
    assert half_hidden(CLAIMED.format(level=level, flags=flags)) is hidden


def test_only_such_a_machine_does_without_tiles_and_the_users_word_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(instructions, "_CPUINFO", cpuinfo)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    for text in (None, "flags: fpu", CLAIMED.format(level="32", flags="amx_tile")):
        if text is not None:
            cpuinfo.write_text(text)
        leave_hidden_tiles_alone()
        assert not tiles_are_half_hidden()
        assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    cpuinfo.write_text(CLAIMED.format(level="28", flags="amx_tile"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    leave_hidden_tiles_alone()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "SSE41"
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    leave_hidden_tiles_alone()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_FP16"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert not instructions.has_bf16()


def test_a_product_in_bfloat16_ends_no_program_that_has_imported_us() -> None:
    program = (
        "import torch, mrtf_fedml; from torch.nn.functional import conv2d; a = torch.ones(64, 64).bfloat16();"
        "kernels = torch.ones(16, 16, 3, 3).bfloat16(); print(float((a @ a).sum()));"
        "print(float(conv2d(a.view(1, 16, 16, 16), kernels)[0, 0, 0, 0]))"
    )
    free = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", program], env=free, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["262144.0", "144.0"]), done.stderr
