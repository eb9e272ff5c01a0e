"""Documentation and code use the field's words: phrases that readers did not understand do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATTERNS = (
    "README.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "mrtf_fedml/**/*.py",
    "fedml_configs/*.yaml",
    "launch/*.sh",
)
FILES = [file for pattern in PATTERNS for file in sorted(ROOT.glob(pattern))]
#: Each was in a message or on a page, and has a plain replacement (overfit, report, integer, boolean, be stored, ...).
_PHRASES = re.compile(
    r"\bby heart\b|\btold\b|\bwhom\b|\bwho minds\b|\bstands? twice\b|\bstands? on\b|\bsees? to it\b|\bwhole numbers?\b"
    r"|\btruths\b|\bsummons\b|\bgoodbye\b|\bfar off\b|\bthe house\b|\bneeds a phone to say\b|\bestimated error\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_file_has_no_banned_phrase(file: Path) -> None:
    found = [
        f"line {number}: {match[0]}"
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if (match := _PHRASES.search(line))
    ]
    assert not found


def test_readme_is_short_and_has_both_commands_first() -> None:
    text = (ROOT / "README.md").read_text()
    lines = text.splitlines()
    assert len(lines) <= 145
    assert max(map(len, lines)) <= 120
    first_block = text.split("```")[1]
    assert "launch/quickstart.sh" in first_block
    assert "launch/test.sh" in first_block
