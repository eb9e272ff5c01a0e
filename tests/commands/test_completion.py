"""`mrtf completion`: the words of the command line, completed by a real shell."""

from __future__ import annotations

import subprocess

import pytest

from mrtf_fedml.cli import main

#: A key of --set.
SETTING = ("run --set comm_r", "comm_round=")


def test_bash_completes_commands_options_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for typed, found in (
        ("co", "compare completion"),
        ("compare --hol", "--holdout"),
        ("example own_n", "own_npz"),
        ("run --set comm_r", "comm_round="),
    ):
        words = ["mrtf", *typed.split()]
        code = f"{script}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _mrtf; echo ${{COMPREPLY[@]}}"
        result = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == found
    for shell, word in (("zsh", "bashcompinit"), ("fish", "-l holdout")):
        assert main(["completion", shell]) == 0
        assert word in capsys.readouterr().out
