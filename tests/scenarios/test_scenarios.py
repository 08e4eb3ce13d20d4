"""Known failures of clusters, written as commands with their output: each run prints the written output."""

from pathlib import Path

import pytest

from linearizability.simulation.scenario import PAGE, BadScenario, Played, main, page, parse, play, scenarios


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> dict[Path, Played]:
    if request.config.getoption("--rewrite", default=False):
        main(["--write"])
    return {path: play(path.read_text()) for path in scenarios()}


@pytest.mark.parametrize("path", scenarios(), ids=lambda path: path.stem)
def test_the_story_happens_as_it_is_written(path: Path, played: dict[Path, Played]):
    assert played[path].text == path.read_text(), "run with --rewrite and review the diff"


def test_the_page_shows_every_story(played: dict[Path, Played]):
    assert PAGE.read_text() == page([*played.values()])


def test_the_two_rules_of_truncation_give_one_story_with_two_ends(played: dict[Path, Played]):
    loss, kept = (
        next(each for path, each in played.items() if name in path.stem) for name in ("101-high", "101-leader")
    )
    assert "broken promise: leader-incomplete" in loss.text and "1:b" not in loss.text.split("show")[-1]
    assert "broken promise" not in kept.text and "1:b@0" in kept.text.split("show")[-1]


def test_a_diagram_names_its_participants(played: dict[Path, Played]):
    diagram = next(iter(played.values())).diagrams[0]
    assert diagram.startswith("sequenceDiagram")
    assert "participant client as client" in diagram and "client->>node1: produce a, acks=all" in diagram


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("topic orders\n----\n", "before there is a cluster"),
        ("cluster nodes=3\n", "not followed by"),
        ("cluster nodes=3\n----\n\nfly away\n----\n", "'fly' is none of"),
    ],
)
def test_an_invalid_scenario_is_refused(text: str, why: str):
    with pytest.raises(BadScenario, match=why):
        play(text)


def test_prose_stands_alone_or_before_a_command():
    first, second = parse("# a\n# b\n\n# c\nwait\n----\nseen\n")
    assert (first.prose, first.command) == (["# a", "# b"], "")
    assert (second.prose, second.command, second.seen) == (["# c"], "wait", ["seen"])
