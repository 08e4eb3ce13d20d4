"""The pages on groups and transactions show the present tables of states, and name files that are there."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from reference.coordinator import classic_state, transaction_state

FOLDER = Path(classic_state.__file__).parent
PAGES = {"GROUPS.md": classic_state, "TRANSACTIONS.md": transaction_state}


@pytest.mark.parametrize(("page", "states"), PAGES.items(), ids=list(PAGES))
def test_the_picture_is_the_table(page: str, states: ModuleType) -> None:
    picture = f"```mermaid\n{states.diagram()}\n```"
    assert picture in (FOLDER / page).read_text(), "put what diagram() gives into the page"


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_it_names_are_there(page: str) -> None:
    named = {*re.findall(r"`((?:\.\./)?[\w/]+\.py)`", (FOLDER / page).read_text())}
    assert len(named) > 10
    assert [name for name in sorted(named) if not (FOLDER / name).exists()] == []
