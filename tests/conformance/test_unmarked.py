"""Transactions without a marker are found in the log, and none that has one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.batches import CONTROL, TRANSACTIONAL, Batch, batch, batches
from conformance.unmarked import Unmarked, over, unmarked
from reference.protocol.messages.list_transactions import ListTransactionsRequest

TRANSACTION_OF = {1: "one", 2: "two", 3: "three"}


def log(notation: str) -> list[Batch]:
    """A log of one partition: `P:V` is the record V of producer P in a transaction, `P!` its marker, `V` a plain record."""
    found: list[Batch] = []
    for offset, word in enumerate(notation.split()):
        producer, colon, value = word.rstrip("!").rpartition(":")
        marker = word.endswith("!")
        attributes = TRANSACTIONAL | CONTROL if marker else TRANSACTIONAL if colon else 0
        id = int(value) if marker else int(producer) if colon else -1
        data = batch(b"" if marker else value.encode(), base_offset=offset, attributes=attributes, producer_id=id)
        found += batches(data)
    return found


@pytest.mark.parametrize(
    ("notation", "wanted"),
    [
        ("", []),
        ("7:1 7! 7:2 7!", []),
        ("7:1 8:2 8! 7!", []),
        ("7:1 7:1 9 7!", []),
        ("7:1 7:2 7!", [("one", 0, False)]),
        ("7:1 8! 7:2 7!", [("one", 0, False)]),
        ("7:1 7! 9 7:2 9", [("two", 3, True)]),
        ("7:1 7:2 7:3", [("one", 0, False), ("two", 1, False), ("three", 2, True)]),
        ("7:99 9 7:1 7!", []),
    ],
)
def test_who_has_no_marker(notation: str, wanted: list[tuple[str, int, bool]]) -> None:
    found = unmarked({4: log(notation)}, TRANSACTION_OF)
    assert found == [Unmarked(4, name, first, 7, hides) for name, first, hides in wanted]


def broker(states: dict[int, str], *, serves: bool = True) -> Any:
    """Two nodes; the second one's coordinator knows these producers' states."""
    listed = [SimpleNamespace(producer_id=id, transaction_state=state) for id, state in states.items()]
    answers = {1: SimpleNamespace(transaction_states=[]), 2: SimpleNamespace(transaction_states=listed)}
    return SimpleNamespace(
        subject=SimpleNamespace(api_versions={ListTransactionsRequest.KEY: (0, 1)} if serves else {}),
        metadata=lambda topics: SimpleNamespace(
            brokers=[SimpleNamespace(node_id=n, host="h", port=n) for n in answers]
        ),
        version_for=lambda request: 1,
        call=lambda request, version, to: answers[to[1]],
    )


LAST = Unmarked(0, "last", 3, producer_id=7, hides=True)
FORMER = Unmarked(0, "former", 0, producer_id=7, hides=False)


@pytest.mark.parametrize(
    ("states", "is_over"),
    [
        ({7: "CompleteAbort"}, True),
        ({7: "Ongoing"}, False),
        ({7: "PrepareCommit"}, False),
        ({8: "CompleteAbort"}, False),
        ({}, False),
    ],
)
def test_the_last_one_is_over_when_a_coordinator_says_so(states: dict[int, str], is_over: bool) -> None:
    assert over(broker(states), [FORMER, LAST]) == [FORMER] + [LAST] * is_over


def test_who_cannot_be_asked_is_not_believed() -> None:
    assert over(broker({7: "CompleteAbort"}, serves=False), [LAST]) == []
