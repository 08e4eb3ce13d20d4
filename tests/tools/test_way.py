"""The tracer follows five operations to their end."""

from pathlib import Path

import pytest

from tests.tools.way import OPERATIONS, way_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST = 1.02
"""A test's cluster may do a little more than the one that was counted."""

ENDS = {
    "produce": "Leading.advance_high_watermark",
    "follower fetch": "Log.append_as_follower",
    "ISR shrink": "Leading.commit_isr",
    "offset commit": "AwaitingCommit.try_complete",
    "end of transaction": "TransactionCoordinator.complete_transaction",
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_followed_to_its_end(operation: str) -> None:
    way = way_of(operation)
    assert any(name.startswith(ENDS[operation]) for _, _, name in way.calls)
    assert len({file for _, file, _ in way.calls}) > 30, "it passes nodes, replicas and logs"


def test_an_acknowledged_record_causes_two_fetches_and_no_background_work() -> None:
    way = way_of("produce")
    names = [name for _, _, name in way.calls]
    assert way.steps == 5, "the request, and for each of two followers a response and the next fetch"
    assert names.count("Serving.read") == 4, "each of the two fetches when it comes, and when there are records"
    assert not {"Node._exchange", "Node._upkeep_deadlines", "ActiveController.advance"} & {*names}


ROWS = {"ISR shrink": "AlterPartition (the ISR shrinks)", "produce": "produce, acks=all"}
"""Names in docs/architecture.md that differ."""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_calls_more_than_the_documented_number(operation: str) -> None:
    """A change that makes an operation longer updates the table, with a reason."""
    name = ROWS.get(operation, operation.replace("end of transaction", "end of a transaction"))
    (row,) = (line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {name} |"))
    documented = int(row.split("|")[3].replace(",", ""))
    assert len(way_of(operation).calls) <= documented * MOST


def test_deadlines_read_no_settings() -> None:
    """They are looked up after each step, and settings change seldom."""
    names = [name for _, _, name in way_of("ISR shrink").calls]
    assert "Cleaner.next_deadline" in names
    assert not any(name.startswith("BrokersCleanerSettings.") for name in names)
