"""Counterparts of the specification's steps are found in the sources; each step without one has a reason."""

import ast
import re
from pathlib import Path

import pytest

from spec import quorum_trace
from spec.actions import ACTIONS, method_name
from spec.counterparts import (
    BOOKS,
    METHODS,
    NO_EVENT,
    NO_METHOD,
    NO_REQUIREMENT,
    NOT_BY_NAME,
    NOT_THE_BROKERS,
    REQUIREMENTS,
    UNCALLED,
)
from spec.traceability import NO_SWITCH, ROOT, is_taken, marked_tests, promises_of, rows, steps_of, traceability_page

BROKERS = [book for book in BOOKS if book not in NOT_BY_NAME]


def test_every_step_of_every_book_has_a_line() -> None:
    page = traceability_page()
    for row in [row for book in BOOKS for row in rows(book)]:
        assert re.search(rf"^\| {row.action} \|", page, re.M), row.action
    assert {row.action for row in rows("replication")} == {action.name for action in ACTIONS}


@pytest.mark.parametrize("book", BROKERS)
def test_every_step_has_a_counterpart_in_every_column_or_a_reason(book: str) -> None:
    """And no reason is given where there is a counterpart."""
    others, found = NOT_THE_BROKERS.get(book, {}), rows(book)
    named = {"method": NO_METHOD, "event": NO_EVENT, "requirement": NO_REQUIREMENT}
    reasons = {column: {**table.get(book, {}), **others} for column, table in named.items()}
    assert {row.action for row in found if not row.places} == {*reasons["method"]}
    assert {row.action for row in found if not row.traced_in} == {*reasons["event"]}
    assert {row.action for row in found if not row.requirements} >= {*NO_REQUIREMENT.get(book, {})}
    assert {row.action for row in found if not row.requirements} <= {*reasons["requirement"]}
    assert [row.action for row in found if not row.tests and row.action not in others] == []
    assert [row.action for row in found if not row.promises and NO_SWITCH not in row.missing] == []
    reported = [reason for row in found for column in reasons if (reason := reasons[column].get(row.action))]
    assert all(reported) and {*reported} <= {reason for row in found for reason in row.missing}


@pytest.mark.parametrize("book", NOT_BY_NAME)
def test_a_book_whose_steps_are_no_methods_says_so_in_every_line(book: str) -> None:
    assert rows(book) and all(row.missing[0] == NOT_BY_NAME[book] for row in rows(book))


def test_what_is_said_of_a_step_is_said_of_one_that_there_is() -> None:
    reported = [
        (book, step)
        for table in (REQUIREMENTS, NO_METHOD, NO_EVENT, NO_REQUIREMENT, NOT_THE_BROKERS)
        for book, steps in table.items()
        for step in steps
    ]
    assert [(book, step) for book, step in [*reported, *marked_tests(), *METHODS] if step not in steps_of(book)] == []


def test_requirements_are_named_by_their_ids() -> None:
    numbers = [number for book in REQUIREMENTS.values() for each in book.values() for number in each]
    assert [number for number in numbers if not re.fullmatch(r"[A-Z]{3}-\d\d", number)] == []
    assert {number[:3] for number in numbers} >= {"REP", "ELE", "EPO", "TXN", "TXV", "CGH"}


@pytest.mark.parametrize("name", ["AdvanceHighWatermark", "AppendFetched", "Truncate", "Produce", "BecomeLeader"])
def test_the_steps_that_the_broker_has_are_found(name: str) -> None:
    row = next(row for row in rows("replication") if row.action == name)
    assert row.places
    assert row.traced_in


@pytest.mark.parametrize("book", BROKERS)
def test_steps_and_methods_bear_the_same_names(book: str) -> None:
    others = {row.action for row in rows(book) if row.method != method_name(row.action)}
    assert {(book, step) for step in others} <= {*METHODS}


def test_a_trace_of_the_quorum_has_its_steps_and_one_more() -> None:
    """A former leader's LeaveEpoch is no step of `Quorum`, but is traced.

    Quorums whose voters change have no trace.
    """
    assert {*steps_of("quorum")} - {"AppendVoters"} | {"LeaveEpoch"} == {*quorum_trace.ARGUMENTS}


def test_methods_of_one_name_are_distinguished() -> None:
    """A broker's heartbeat is not a group's, a transaction's end not that of its offsets."""
    found = {(book, row.action): row for book in BROKERS for row in rows(book)}
    assert found["groups", "Heartbeat"].places == ("reference/coordinator/consumer_groups.py",)
    assert found["transactions", "EndTransaction"].places == ("reference/coordinator/transaction_coordinator.py",)
    assert found["replication", "BecomeLeader"].places == ("reference/replication/partition.py",)
    assert found["quorum", "BecomeLeader"].places == ("reference/controller/quorum_leading.py",)


def test_every_method_of_replication_is_called_in_the_broker_or_says_that_it_is_not() -> None:
    nodes = [node for path in (ROOT / "reference").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    uncalled = {row.action for row in rows("replication") if row.places and not {row.method, f"_{row.method}"} & used}
    assert {("replication", step) for step in uncalled} == {*UNCALLED}


def test_marked_tests_are_found_where_they_stand() -> None:
    assert {book for book, _ in marked_tests()} >= {"replication", "quorum", "transactions", "groups"}
    for tests in marked_tests().values():
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in Path(ROOT / file).read_text()


def test_a_marked_test_that_does_not_call_the_step_fails() -> None:
    replica, quorum = (
        str(ROOT / f"reference/{name}.py") for name in ("replication/partition", "controller/quorum_leading")
    )
    assert is_taken("replication", "BecomeLeader", {(replica, "become_leader")})
    assert not is_taken("replication", "BecomeLeader", {(quorum, "become_leader"), (replica, "take_up")})
    assert not is_taken("groups", "Heartbeat", set())


def test_switches_are_found_through_what_a_step_uses() -> None:
    """IgnoreMinIsr is in UnderMinIsr, which several steps use."""
    assert any("IgnoreMinIsr" in promise for promise in promises_of("AdvanceHighWatermark", "replication"))
    assert not any("IgnoreMinIsr" in promise for promise in promises_of("ElectLeader", "replication"))
    assert set(promises_of("TakeStopReplica", "historical")) == {
        "OnlyRemovedReplicasAreDeleted (StopReplicaWithoutLeaderEpoch, TakeFromDeposedController)",
        "MetadataNeverGoesBack (NameOldLeaders)",
        "DeletionsAreKnown (CountAnyAnswer)",
        "StoppedAreStopped (KeepStoppedLog)",
        "StaleRequestsChangeNothing (IgnoreBrokerEpoch)",
        "BrokersLearnTheEpoch (ForgetControllerEpoch)",
    }
