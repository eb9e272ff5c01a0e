"""The user's own Python, named in YAML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.settings.named_object import named_object


def test_the_current_folder_is_searched_also_by_an_installed_command(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "mine.py").write_text("class Net:\n    depth = 3\n")
    code = (
        "import sys; from mrtf_fedml.settings.named_object import named_object;"
        "sys.path[:] = [p for p in sys.path if p];"
        "print(named_object('inside.mine:Net.depth', 'key'))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "3"


@pytest.mark.parametrize("name", ["", "math", "math:", ":pi", "a b:pi", "math:pi()", "../x:y"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"some\.key is .*; write it as package\.module:Name"):
        named_object(name, "some.key")


def test_why_an_import_fails_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "needs_more.py").write_text("import surely_not_there\n")
    (tmp_path / "half_written.py").write_text("def f(:\n")
    with pytest.raises(UserError, match=r"fails with ModuleNotFoundError \(No module named 'surely_not_there'\)"):
        named_object("needs_more:f", "key")
    with pytest.raises(UserError, match="fails with SyntaxError") as told:
        named_object("half_written:f", "key")
    assert "\n" not in str(told.value)
    with pytest.raises(UserError, match=r"there is no module 'surely\.not_there'"):
        named_object("surely.not_there:f", "key")
