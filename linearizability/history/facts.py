"""Facts: the contents of a history by partition, one row a fact, in one Arrow schema.

Operations are for people and for recording; rules work on facts. A fact is one record sent, one record polled, one offset
reported. All kinds of facts share one schema, so that everything known of a partition travels in one shuffle; a column
means what the table says, and holds -1 (or `NEVER`) where the kind has no use for it.

| kind | offset | value | epoch | other |
| --- | --- | --- | --- | --- |
| APPEND | acknowledged offset | the record | producer epoch | group: the producer; extra: when the commit was asked for; |
| | | | | session: µs from then until the commit was answered, rounded up, in a transaction recorded step by step |
| OBSERVATION | offset read | the record | leader epoch | group: the consumer's group; session; flags: isolation, rebalanced |
| DRAIN | log end | where the reader began | | extra: the position reached |
| END_OFFSETS | log end as answered | | | extra: log start as answered; position: 0 list offsets, 1 a fetch |
| COMMIT | committed offset | the member | generation | group; flags: whether it had sought a position, where it begins |
| COMMITTED | offset fetched | | | group; flags: isolation, which asks for stable offsets |
| OWNERSHIP | | the member | generation | group |
| HIGH_WATERMARK … LOG_END | that offset | | leader epoch | node |
| REPLICA_RECORD | offset | the record | leader epoch | node; extra: that replica's high watermark |
| TRANSACTION | | | producer epoch | group: the producer; one row a transaction, in no partition |
| REGISTER | | value written or read | | extra: the value expected (cas); position: the function |

A replica that holds nothing is one REPLICA_RECORD without an offset.

An operation's number is unique in its run: the process in the upper bits (`operation_name` undoes it), so sorting by
operation and position puts each process's facts in the order in which the process acted.

`position` is the row's place in its operation. `session` counts, for one process and partition, how often the consumer's
position was legally changed from outside: by a new assignment, a seek or a rebalance.
"""

from __future__ import annotations

import hashlib
import json
import re
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

MAX_WAIT_US = (1 << 31) - 1
"""A wait that took longer, or has no end."""
UNKNOWN = -1
"""An offset, epoch, node, group or transaction that is not known or not there."""


class Kind(IntEnum):
    APPEND = 0
    OBSERVATION = 1
    DRAIN = 2
    END_OFFSETS = 3
    COMMIT = 4
    COMMITTED = 5
    OWNERSHIP = 6
    HIGH_WATERMARK = 7
    LAST_STABLE_OFFSET = 8
    LOG_START = 9
    LOG_END = 10
    REPLICA_RECORD = 11
    TRANSACTION = 12
    REGISTER = 13


class Outcome(IntEnum):
    OK = 0
    FAIL = 1
    INFO = 2


OUTCOMES = {"ok": Outcome.OK, "fail": Outcome.FAIL, "info": Outcome.INFO}


class Flag(IntFlag):
    ACKS_ALL = 1
    """The append was sent with acks=all."""
    IDEMPOTENT = 2
    TRANSACTIONAL = 4
    ACKNOWLEDGED = 8
    """The send itself was acknowledged, whatever became of its transaction: its offset is occupied. Or the commit of an offset in
    a transaction was."""
    READ_COMMITTED = 16
    REBALANCED = 32
    """The consumer's assignment changed within the operation."""
    SUBSCRIBED = 64
    """The consumer got its partitions from a group; a rebalance may have gone unrecorded."""
    MANY_PARTITIONS = 128
    """The append's operation wrote to more than this partition."""
    ORDERED = 256
    """The producer promises order: idempotent, or one request in flight."""
    UNANSWERED = 512
    """The append was sent with acks=0: no broker answers."""
    SOUGHT = 1024
    """The consumer had sought a position in the partition before, or the records of one of its polls are not known: it need not
    have read the records below."""
    FROM_END = 2048
    """A consumer without a position continues at the log's end: where its group has no offset, or that is out of range."""


COLUMNS: dict[str, Any] = {
    "kind": np.int8,
    "process": np.int32,
    "operation": np.int64,
    "position": np.int32,
    "invoked": np.int64,
    "completed": np.int64,
    "outcome": np.int8,
    "flags": np.int16,
    "offset": np.int64,
    "value": np.int64,
    "session": np.int32,
    "transaction": np.int64,
    "node": np.int32,
    "epoch": np.int32,
    "group": np.int64,
    "extra": np.int64,
}
"""The columns that checks see, with their NumPy types."""


class Fact(NamedTuple):
    """A row, without its run and its partition; fields that are not given are unknown."""

    kind: Kind
    process: int
    operation: int
    invoked: int
    completed: int
    outcome: int
    position: int = 0
    flags: int = 0
    offset: int = UNKNOWN
    value: int = UNKNOWN
    session: int = 0
    transaction: int = UNKNOWN
    node: int = UNKNOWN
    epoch: int = UNKNOWN
    group: int = UNKNOWN
    extra: int = UNKNOWN


KEY_COLUMNS = ("run", "topic", "partition")

SCHEMA = pa.schema(
    [
        pa.field("run", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *(pa.field(name, pa.from_numpy_dtype(kind), nullable=False) for name, kind in COLUMNS.items()),
    ]
)
"""The schema of facts in memory, in Parquet files and between Spark's workers."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_SMALL = 1 << 61
MAX_OFFSET = (1 << 60) - 1
"""No real log reaches this; a greater one is bad input. Four times as many places still fit an integer of 64 bits."""


def identity(value: Any) -> int:
    """A record's value as an integer: integers are themselves, all else a hash of 61 bits above them.

    The same on every machine and in every process, so that files can be turned into facts one by one. Two of n other
    values collide with a chance of n²/2⁶²; histories of more than some 10⁸ records should use integers.
    """
    if type(value) is int and -_SMALL < value < _SMALL:
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value) and -_SMALL < int(value) < _SMALL:
        return int(value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _SMALL + _SMALL


class FactsBuilder:
    """Collects facts row by row and hands them out as record batches."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._keys: dict[tuple[str, int], int] = {}
        self._codes: list[int] = []
        self._rows: list[Fact] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: tuple[str, int], fact: Fact) -> None:
        """Add one fact of the partition `key` (topic, partition)."""
        code = self._keys.get(key)
        if code is None:
            key[0].encode()  # a name that no file can hold is refused here, not when the batch is taken
            code = self._keys[key] = len(self._keys)
        self._codes.append(code)
        self._rows.append(fact)

    def take(self) -> pa.RecordBatch:
        """The facts that were collected since the last call."""
        topics = list(dict.fromkeys(topic for topic, _ in self._keys))
        topic_of = np.array([topics.index(topic) for topic, _ in self._keys], np.int32)
        partition_of = np.array([partition for _, partition in self._keys], np.int32)
        rows = np.array(self._rows, np.int64).reshape(-1, len(Fact._fields))
        codes = np.array(self._codes, np.int64)
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([self.run])),
            pa.DictionaryArray.from_arrays(pa.array(topic_of[codes]), pa.array(topics, pa.string())),
            pa.array(partition_of[codes]),
            *(pa.array(rows[:, Fact._fields.index(name)].astype(kind)) for name, kind in COLUMNS.items()),
        ]
        self._codes, self._rows = [], []
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def operation_name(operation: int) -> str:
    """An operation for people: `process/number`."""
    return f"{operation >> 32}/{operation & 0xFFFFFFFF}"


def empty_facts() -> pa.Table:
    return SCHEMA.empty_table()
