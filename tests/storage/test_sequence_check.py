"""Which sequence numbers may follow which."""

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.records.batch import MAX_SEQUENCE
from reference.storage.sequence_check import check_sequence

OK, ORDER, EPOCH = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("known_epoch", "last", "epoch", "first", "verdict"),
    [
        (-1, -1, 0, 0, OK),
        (-1, -1, 3, 77, OK),  # unknown producer: any first sequence (IDM-10)
        (0, 9, 0, 10, OK),
        (0, 9, 0, 9, ORDER),
        (0, 9, 0, 11, ORDER),
        (0, MAX_SEQUENCE, 0, 0, OK),  # the wrap (IDM-03)
        (0, MAX_SEQUENCE, 0, 1, ORDER),
        (0, 9, 1, 0, OK),
        (0, 9, 1, 10, ORDER),  # a new epoch starts at 0 (IDM-09)
        (1, 9, 0, 10, EPOCH),  # an old epoch is over (IDM-08)
        (1, -1, 1, 0, OK),  # only a marker is known of this epoch
        (1, -1, 1, 5, ORDER),
    ],
)
def test_verdicts(known_epoch: int, last: int, epoch: int, first: int, verdict: ErrorCode) -> None:
    assert check_sequence(known_epoch, last, epoch, first) is verdict
