"""Transactions without a marker are found in the log, and none that has one."""

from __future__ import annotations

import pytest

from conformance.batches import CONTROL, TRANSACTIONAL, Batch, batch, batches
from conformance.unmarked import Unmarked, unmarked

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
    assert unmarked({4: log(notation)}, TRANSACTION_OF) == [Unmarked(4, *each) for each in wanted]
