"""docs/settings.md says what the code says, and says something of every key."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from mrtf_fedml.algorithms import FedAvg  # noqa: F401  importing them declares their settings
from mrtf_fedml.settings import sections
from mrtf_fedml.settings.reference import comments_of, kind_in_words, settings_reference
from mrtf_fedml.settings.sections import PARTS, declare, declared_settings

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Sample:
    """Not declared as anybody's."""

    #: One line, with a | in it.
    #: And one more.
    share: Annotated[float, Field(ge=0, lt=1)] = 0.00001
    words: list[str] = field(default_factory=list)
    # Not for readers.
    option: Literal[1, 2] = 2


def test_the_page_is_what_is_written_now() -> None:
    command = "python docs/write_settings.py > docs/settings.md"
    script = [sys.executable, str(ROOT / "docs" / "write_settings.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    written = subprocess.run(script, capture_output=True, text=True, check=True, env=environment).stdout
    assert (ROOT / "docs" / "settings.md").read_text() == written, f"settings have changed; run: {command}"


def test_every_key_of_ours_is_explained() -> None:
    ours = [part for _, part in [*PARTS.values(), *declared_settings()] if part.__module__.startswith("mrtf_fedml.")]
    silent = [f"{part.__name__}.{key}" for part in ours for key, comment in comments_of(part).items() if not comment]
    assert silent == [], "say what it means and which values make sense, in `#:` lines above it"


def test_a_comment_is_the_lines_right_above_its_field() -> None:
    assert comments_of(Sample) == {"share": "One line, with a | in it. And one more.", "words": "", "option": ""}


def test_kinds_are_said_in_words() -> None:
    assert kind_in_words(Annotated[float, Field(ge=0, lt=1)]) == "number, 0 or more, below 1"
    assert kind_in_words(str | None) == "text"
    assert kind_in_words(list[str]) == "list of texts"
    assert kind_in_words(Literal["a"]) == "`a`"


def test_an_algorithms_keys_stand_under_its_name_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "_declared", {})
    declare("sample_args", Sample, "the sample")
    row = "| `share` | number, 0 or more, below 1 | `0.00001` | One line, with a \\| in it. And one more. |\n"
    assert row in settings_reference({Sample: "Mine"}).split("## `sample_args`\n\n### Mine\n")[1]
    assert "sample_args" not in settings_reference({})
