"""docs/recipes.md: each recipe is short, and the files and tests that it names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "recipes.md").read_text(), re.M | re.S)
PLACES = ("", "reference", "linearizability")
"""Paths may begin in one of these folders."""


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_a_recipe_has_at_most_seven_steps_and_names_what_there_is(title: str, text: str) -> None:
    assert 3 <= len(re.findall(r"^\d\. ", text, re.M)) <= 7
    for named in re.findall(r"`([\w./]+/[\w./]+(?:::\w+)?)`", text):
        path, _, test = named.partition("::")
        (found, *_) = [place for place in PLACES if (ROOT / place / path).exists()] or [None]
        assert found is not None, f"{title}: there is no {path}"
        assert not test or f"def {test}(" in (ROOT / found / path).read_text(), f"{title}: there is no test {test}"


def test_there_is_one_for_each_thing_that_a_contributor_adds() -> None:
    words = " ".join(title for title, _ in SECTIONS).lower()
    assert all(word in words for word in ("api", "requirement", "rule", "fault", "mutant", "target", "switch"))
