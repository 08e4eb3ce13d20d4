"""The quorum's rules over plain numbers: confirmed over all paths by CrossHair, and searched where they take more."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.controller.quorum_rules import majority_end, successor_delay_ms
from tests.kept import crosshair

ROOT = Path(__file__).parent.parent.parent
RULES = {"reference/controller/quorum_rules.py": 13, "tests/controller/quorum_contracts.py": 2}
"""Files, and how many postconditions each has."""


@pytest.mark.process
@pytest.mark.parametrize("rule", RULES)
def test_confirmed_over_all_paths(rule: str) -> None:
    text = (ROOT / rule).read_text()
    assert len(re.findall(r"^\s+post:", text, re.MULTILINE)) == RULES[rule]
    lines = crosshair(ROOT / rule)
    assert len(lines) == RULES[rule], lines
    assert all(line.endswith("Confirmed over all paths.") for line in lines), lines


@pytest.mark.process
def test_a_broken_rule_is_refuted(tmp_path: Path) -> None:
    text = (ROOT / "reference/controller/quorum_rules.py").read_text()
    broken = tmp_path / "broken_rules.py"
    broken.write_text(text.replace("if reached > epoch_start else current", "if reached >= epoch_start else current"))
    assert broken.read_text() != text
    assert any("error" in line for line in crosshair(broken))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_a_majority_has_it_and_no_majority_has_more(ends: list[int]) -> None:
    reached = majority_end(ends)
    assert 2 * sum(end >= reached for end in ends) > len(ends)
    assert 2 * sum(end > reached for end in ends) <= len(ends)


@given(st.integers(1, 9), st.integers(0, 10_000))
def test_better_successors_stand_no_later(successors: int, max_ms: int) -> None:
    delays = [successor_delay_ms(position, successors, max_ms) for position in range(successors)]
    assert delays == sorted(delays)
    assert delays[0] == 0
    assert max(delays) <= successor_delay_ms(-1, successors, max_ms) == max_ms
