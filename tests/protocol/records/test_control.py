"""Control records; Kafka's own markers are read and written in test_against_java."""

import pytest

from reference.protocol.records.control import (
    ControlType,
    control_key,
    read_end_transaction,
)
from reference.protocol.records.errors import InvalidRecord
from tests.protocol.records.random_records import record_at


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, bytes(6)), (b"", bytes(6)), (b"\0\0\0", bytes(6)), (control_key(ControlType.LEADER_CHANGE), bytes(6)),
     (control_key(ControlType.ABORT), None), (control_key(ControlType.ABORT), bytes(5))],
)  # fmt: skip
def test_malformed_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_end_transaction(record_at(0, 0, key, value))
