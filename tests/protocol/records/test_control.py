"""Control records; Kafka's own markers are read and written in test_against_java."""

import pytest

from reference.protocol.records.batch import read_header, records_of
from reference.protocol.records.control import (
    ControlType,
    EndTransaction,
    build_end_transaction,
    control_key,
    control_type,
    read_end_transaction,
)
from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.record import Record


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker(committed: bool) -> None:
    batch = build_end_transaction(EndTransaction(committed, 9), 12, 3, now=1000)
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence, header.record_count) == (
        True,
        True,
        -1,
        1,
    )
    (record,) = records_of(memoryview(batch))
    assert record.key is not None
    assert bytes(record.key).hex() == ("00000001" if committed else "00000000")
    assert read_end_transaction(record) == EndTransaction(committed, 9)
    assert control_type(record) == (ControlType.COMMIT if committed else ControlType.ABORT)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, bytes(6)), (b"", bytes(6)), (b"\0\0\0", bytes(6)), (control_key(ControlType.LEADER_CHANGE), bytes(6)),
     (control_key(ControlType.ABORT), None), (control_key(ControlType.ABORT), bytes(5))],
)  # fmt: skip
def test_what_is_no_marker(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_end_transaction(Record(0, 0, key, value))
