"""The pure rules keep their contracts on all inputs: CrossHair confirms it, it does not sample."""

import re
from pathlib import Path

import pytest

from tests.kept import crosshair

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent.parent
RULES = {
    "reference/storage/epoch_lookup.py": 4,
    "reference/storage/sequence_check.py": 4,
    "reference/storage/truncation_point.py": 3,
}
"""Files, and how many postconditions each has."""


@pytest.mark.parametrize("rule", RULES)
def test_confirmed_over_all_paths(rule: str) -> None:
    text = (ROOT / rule).read_text()
    assert len(re.findall(r"^\s+post:", text, re.MULTILINE)) == RULES[rule]
    lines = crosshair(ROOT / rule)
    assert len(lines) == RULES[rule], lines
    assert all(line.endswith("Confirmed over all paths.") for line in lines), lines


def test_a_broken_rule_is_refuted(tmp_path: Path) -> None:
    text = (ROOT / "reference/storage/sequence_check.py").read_text()
    broken = tmp_path / "broken_check.py"
    broken.write_text(text.replace("0 if last_sequence == MAX_SEQUENCE else last_sequence + 1", "last_sequence + 1"))
    assert broken.read_text() != text
    assert any("error" in line for line in crosshair(broken))
