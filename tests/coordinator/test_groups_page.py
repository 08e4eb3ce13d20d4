"""The page on groups shows the present table of states."""

from __future__ import annotations

import re
from pathlib import Path

from reference.coordinator import classic_state

PAGE = Path(classic_state.__file__).with_name("GROUPS.md")


def test_the_picture_is_the_table() -> None:
    found = re.search(r"```mermaid\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == classic_state.diagram(), "put what classic_state.diagram() gives into the page"


def test_the_files_that_it_names_are_there() -> None:
    named = set(re.findall(r"`((?:\.\./)?[a-z_/]+\.py)`", PAGE.read_text()))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (PAGE.parent / name).exists()] == []
