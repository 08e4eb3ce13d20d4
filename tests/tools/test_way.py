"""The tracer follows five operations to where they end."""

import pytest

from tests.tools.way import OPERATIONS, way_of

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
