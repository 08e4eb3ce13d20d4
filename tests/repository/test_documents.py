"""Documents: a README says what a thing is and how it is used, in at most 1,500 words; lines of prose are at most 130 wide.

Recipes are short and name what there is. Files for the repository's host and for citations parse, and have the package's version.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from linearizability.results import suite_version

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


FORMS = [
    path for path in sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"
]
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]


def test_the_citation_and_the_changes_have_the_package_s_version():
    assert str(yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())["version"]) == VERSION
    assert f"\n## {VERSION}\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def test_a_tag_of_this_commit_is_its_version_and_results_of_another_name_the_commit():
    tags = [tag for tag in git("tag", "--points-at", "HEAD").split() if tag.startswith("v")]
    assert set(tags) <= {f"v{VERSION}"}
    commit = git("rev-parse", "HEAD").strip()
    named, plus, short = suite_version().partition("+g")
    assert named == VERSION and (bool(plus) == (not tags)) and commit.startswith(short)


def test_there_are_issue_forms() -> None:
    assert FORMS


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_asks_for(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields) > 0
    assert all(part["attributes"]["label"] for part in fields)


def test_every_input_of_the_action_is_used_and_described():
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    steps = str(action["runs"]["steps"])
    for name, one in action["inputs"].items():
        assert one["description"] and f"inputs.{name} " in steps, name
