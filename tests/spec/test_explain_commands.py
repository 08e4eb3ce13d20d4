"""`tidegauge spec explain` knows models, switches, and the steps of all books."""

import json

import pytest
from typer.testing import CliRunner

from spec.commands import app
from spec.counterparts import OF_MESSAGES
from spec.steps import BOOKS, steps_called
from spec.traceability import steps_of


def explained(name: str) -> dict:
    done = CliRunner().invoke(app, ["spec", "explain", name, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("book", BOOKS)
def test_every_step_of_every_book_has_a_definition(book: str) -> None:
    assert steps_of(book)
    for name in steps_of(book):
        steps = [step for step in steps_called(name) if step.book == book]
        assert steps and len({step.module for step in steps}) == len(steps)
        for step in steps:
            assert f'Step("{name}"' in step.text
            assert "\n\n" not in step.text and "----" not in step.text


def test_a_step_is_explained_in_each_book_that_has_it() -> None:
    assert [about["book"] for about in explained("BecomeCandidate")["books"]] == ["quorum"]
    found = explained("BecomeLeader")["books"]
    assert [about["book"] for about in found] == ["replication", "quorum", "quorum"]
    assert [about["defined in"] for about in found[1:]] == ["spec/quorum/ChangingVoters.tla", "spec/quorum/Quorum.tla"]
    (about,) = explained("Heartbeat")["books"]
    assert about["defined in"] == "spec/groups/Groups.tla"
    assert "NoDoubleAssignment (AssignBeforeRevocation)" in about["promises"]
    assert about["definition"].startswith("\\* The member sends the partitions that it owns")


@pytest.mark.parametrize("name", ["SendFetch", "TakeRecords", "RefuseProposal"])
def test_a_step_of_the_message_grain_is_explained(name: str) -> None:
    (about,) = explained(name)["books"]
    assert (about["defined in"], about["lacks"]) == ("spec/replication/Messages.tla", [OF_MESSAGES])
    assert f'MessageStep("{name}"' in about["definition"]


def test_an_action_of_replication_says_whose_it_is_and_what_it_takes() -> None:
    (about,) = (each for each in explained("AppendFetched")["books"] if each["book"] == "replication")
    assert (about["whose"], about["arguments"]) == ("follower", ["follower", "leader", "end"])
    assert about["method"] == "append_fetched" and about["in"] == ["reference/replication/follower.py"]


def test_models_and_switches_are_explained() -> None:
    assert "IgnoreMinIsr" in explained("MCIsr")["switches"]
    assert explained("IgnoreMinIsr")["violates"] == "EligibleAreComplete"


def test_what_there_is_not_is_wrong_usage() -> None:
    done = CliRunner().invoke(app, ["spec", "explain", "Jump"])
    assert done.exit_code != 0
    assert "no model, switch or step is called Jump" in done.output


def test_the_examples_show_an_action_and_how_results_are_stored() -> None:
    assert "tidegauge spec explain BecomeCandidate" in CliRunner().invoke(app, ["spec", "explain", "--help"]).output
    assert "--record" in CliRunner().invoke(app, ["spec", "check", "--help"]).output.partition("Examples:")[2]
