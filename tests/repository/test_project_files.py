"""Files for the repository's host and for citations: they parse, and have the package's version."""

import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from linearizability.results import suite_version

REPOSITORY = Path(__file__).resolve().parents[2]
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
