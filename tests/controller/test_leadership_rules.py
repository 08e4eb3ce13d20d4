"""The rules of leadership and of brokers' states, confirmed over all paths by CrossHair."""

from pathlib import Path

import pytest

from tests.kept import crosshair

ROOT = Path(__file__).parent.parent.parent
RULES = {
    "reference/controller/leadership_rules.py": 9,
    "reference/controller/heartbeats.py": 3,
}
"""Files, and how many postconditions each has."""


@pytest.mark.process
@pytest.mark.parametrize("rules", RULES)
def test_crosshair_confirms_over_all_paths(rules: str) -> None:
    lines = crosshair(ROOT / rules)
    assert len(lines) == RULES[rules], lines
    assert all(line.endswith("Confirmed over all paths.") for line in lines), lines
