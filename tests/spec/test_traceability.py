"""The way from the specification to the broker is found in the sources, and what lacks a counterpart says why."""

import re

import pytest

from spec.actions import ACTIONS, method_name
from spec.traceability import (
    BOOKS,
    COUNTERPARTS,
    ENVIRONMENT,
    NO_EVENT,
    NO_METHOD,
    REQUIREMENTS,
    promises_of,
    rows,
    traceability_page,
)

SHARED = [row for folder in BOOKS for row in rows(folder)]


def test_every_step_of_every_book_has_a_line() -> None:
    page = traceability_page()
    for row in SHARED:
        assert re.search(rf"^\| {row.action} \|", page, re.M), row.action
    assert {row.action for row in rows("replication")} == {action.name for action in ACTIONS}


def test_what_lacks_a_counterpart_says_why() -> None:
    assert [row.action for row in SHARED if not (row.places and row.tests) and not row.missing] == []


def test_every_step_of_replication_answers_to_a_requirement() -> None:
    assert set(REQUIREMENTS) == {action.name for action in ACTIONS}
    assert all(REQUIREMENTS.values())
    numbers = [number for each in REQUIREMENTS.values() for number in each]
    assert [number for number in numbers if not re.fullmatch(r"[A-Z]{3}-\d\d", number)] == []


@pytest.mark.parametrize("name", ["AdvanceHighWatermark", "AppendFetched", "Truncate", "Produce", "BecomeLeader"])
def test_the_steps_that_the_broker_has_are_found(name: str) -> None:
    row = next(row for row in rows("replication") if row.action == name)
    assert row.places
    assert row.told_in


def test_steps_events_and_methods_of_replication_bear_the_same_names() -> None:
    """One list three times: what lacks a method or an event of its name is named, with the reason."""
    found = rows("replication")
    assert {row.action for row in found if not row.places} == {*NO_METHOD}
    assert {row.action for row in found if not row.told_in} == {*NO_EVENT}
    assert all([*NO_METHOD.values(), *NO_EVENT.values()])


@pytest.mark.parametrize(
    ("folder", "others"),
    [
        ("transactions", {"SendWrite", "DropWrite", "AppendWrite", "AppendMarker"}),
        ("groups", {"TakeAnswer", "LoseAnswer", "LetGo"}),
    ],
)
def test_steps_events_and_methods_of_coordinators_bear_the_same_names(folder: str, others: set[str]) -> None:
    """What is somebody else's step has neither; all others have both."""
    found = rows(folder)
    assert others <= {*ENVIRONMENT}
    assert {row.action for row in found if not row.told_in} == others
    assert {row.action for row in found if not row.places} == others
    assert {row.action for row in found if row.method != method_name(row.action)} <= {*COUNTERPARTS}


def test_switches_are_found_through_what_a_step_uses() -> None:
    """IgnoreMinIsr stands in UnderMinIsr, which several steps use."""
    assert any("IgnoreMinIsr" in promise for promise in promises_of("AdvanceHighWatermark", "replication"))
    assert not any("IgnoreMinIsr" in promise for promise in promises_of("ElectLeader", "replication"))
    assert promises_of("TakeStopReplica", "historical") == ("InSyncReplicasHaveTheLog (TakeFromDeposedController)",)
