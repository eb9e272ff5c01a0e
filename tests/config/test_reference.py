"""The settings reference: docs/reference/settings.md is up to date, and every key has a description."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from mrtf_fedml.algorithms import FedAvg  # noqa: F401  importing them declares their settings
from mrtf_fedml.config import schema
from mrtf_fedml.config.reference import describe_type, field_comments, settings_reference
from mrtf_fedml.config.schema import SECTION_CLASSES, algorithm_sections, declare_section

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Sample:
    """Settings of no registered algorithm."""

    #: One line, with a | in it.
    #: And one more.
    share: Annotated[float, Field(ge=0, lt=1)] = 0.00001
    words: list[str] = field(default_factory=list)
    # Not for readers.
    option: Literal[1, 2] = 2


def test_generated_reference_pages_are_up_to_date(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.ipynb"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(tmp_path / "docs" / "write_reference.py")], check=True, env=environment)
    for page in ("settings.md", "command_line.md", "metrics.md"):
        current, written = (folder / "docs" / "reference" / page for folder in (ROOT, tmp_path))
        assert current.read_text() == written.read_text(), f"{page} is out of date; run: python docs/write_reference.py"


def test_every_key_has_a_comment() -> None:
    ours = [
        part
        for _, part in [*SECTION_CLASSES.values(), *algorithm_sections()]
        if part.__module__.startswith("mrtf_fedml.")
    ]
    undocumented = [
        f"{part.__name__}.{key}" for part in ours for key, comment in field_comments(part).items() if not comment
    ]
    assert undocumented == [], "say what it means and which values make sense, in `#:` lines above it"


def test_field_comments_reads_lines_above_the_field() -> None:
    assert field_comments(Sample) == {"share": "One line, with a | in it. And one more.", "words": "", "option": ""}


def test_describe_type_of_bounds_strings_and_literals() -> None:
    assert describe_type(Annotated[float, Field(ge=0, lt=1)]) == "number, 0 or more, below 1"
    assert describe_type(str | None) == "string"
    assert describe_type(list[str]) == "list of strings"
    assert describe_type(Literal["a"]) == "`a`"


def test_settings_reference_lists_algorithm_keys_only_for_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_declared", {})
    declare_section("sample_args", Sample, "Sample", "the sample")
    row = "| `share` | number, 0 or more, below 1 | `0.00001` | One line, with a \\| in it. And one more. |\n"
    assert row in settings_reference({Sample: "Mine"}).split("## `sample_args`\n\n### Mine\n")[1]
    assert "sample_args" not in settings_reference({})
