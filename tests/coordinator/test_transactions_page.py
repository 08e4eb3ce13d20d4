"""The page on transactions shows the states as the table has them, and names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

from reference.coordinator import transaction_state

PAGE = Path(transaction_state.__file__).with_name("TRANSACTIONS.md")


def test_the_picture_is_the_tables() -> None:
    assert f"```mermaid\n{transaction_state.diagram()}\n```" in PAGE.read_text()


def test_every_file_that_it_names_is_there() -> None:
    names = re.findall(r"`((?:\.\./)?[\w/]+\.py)`", PAGE.read_text())
    assert len(names) > 10
    missing = [name for name in names if not (PAGE.parent / name).exists()]
    assert not missing
