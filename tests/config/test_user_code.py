"""Import of the user's own classes, named in the YAML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mrtf_fedml.config.user_code import import_object
from mrtf_fedml.errors import UserError


def test_import_object_searches_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "mine.py").write_text("class Net:\n    depth = 3\n")
    code = (
        "import sys; from mrtf_fedml.config.user_code import import_object;"
        "sys.path[:] = [p for p in sys.path if p];"
        "print(import_object('inside.mine:Net.depth', 'key'))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "3"


@pytest.mark.parametrize("name", ["", "math", "math:", ":pi", "a b:pi", "math:pi()", "../x:y"])
def test_import_object_rejects_malformed_name(name: str) -> None:
    with pytest.raises(UserError, match=r"some\.key is .*; write it as package\.module:Name"):
        import_object(name, "some.key")


def test_import_object_reports_failed_import_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "needs_more.py").write_text("import surely_not_there\n")
    (tmp_path / "half_written.py").write_text("def f(:\n")
    with pytest.raises(UserError, match=r"fails with ModuleNotFoundError \(No module named 'surely_not_there'\)"):
        import_object("needs_more:f", "key")
    with pytest.raises(UserError, match="fails with SyntaxError") as raised:
        import_object("half_written:f", "key")
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match=r"there is no module 'surely\.not_there'"):
        import_object("surely.not_there:f", "key")
