"""Documents: a README says what a thing is and how it is used, in at most 1,500 words; lines of prose are at most 130 wide."""

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MOST_WORDS = 1_500
WIDEST = 130
TO_BE_SHORTENED = {"conformance/strangers/README.md"}
DATA = ("conformance/strangers/", "tests/rules/labelled_differences.md")
"""Rows of measurements and of differences, one paragraph each."""
TRACKED = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
DOCUMENTS = TRACKED.stdout.split()
READMES = [path for path in DOCUMENTS if path.endswith("README.md") and path not in TO_BE_SHORTENED]


def wide_lines(text: str) -> list[str]:
    """Lines of prose that are too wide: rows of tables and the output of commands cannot be broken."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in prose.splitlines() if len(line) > WIDEST and not line.lstrip().startswith("|")]


@pytest.mark.parametrize("path", READMES)
def test_a_readme_is_short(path: str) -> None:
    assert len((REPOSITORY / path).read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if not path.startswith(DATA)])
def test_no_line_of_prose_is_wide(path: str) -> None:
    assert wide_lines((REPOSITORY / path).read_text()) == []


def test_the_width_counts_for_prose_and_not_for_tables() -> None:
    assert (
        wide_lines(f"{'a' * WIDEST}\n| {'a' * WIDEST} |\n```text\n{'a' * WIDEST} \n```\n  | {'a' * WIDEST} |\n") == []
    )
    assert wide_lines(f"short\n{'a ' * WIDEST}\n") == ["a " * WIDEST]
