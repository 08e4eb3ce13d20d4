"""A broker's errors by the client's reaction, one set each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.protocol.schema import Message

STALE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)  # fmt: skip
"""The client refreshes its metadata and tries again."""
NO_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""The client looks for the coordinator again."""
LOADING = NO_COORDINATOR | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""The coordinator is not ready, or has changed: the client asks again."""
GROUP_RETRIABLE = LOADING | STALE | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSTABLE_OFFSET_COMMIT}
"""A member of a group takes the same step again."""
TRANSACTION_RETRIABLE = (
    LOADING
    | STALE
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NETWORK_EXCEPTION, ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)  # fmt: skip
"""A transactional producer takes the same step again."""
JOIN_AGAIN = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED}
)  # fmt: skip
"""A member of a classic group joins again; an unknown one as a new member."""
SESSION_OVER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)  # fmt: skip
"""A transactional producer begins a new session."""


def error_name(code: int) -> str:
    """The name of a code, or its number where it has none: `error 999`."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def errors_in(answer: Message) -> Iterator[int]:
    """The errors of an answer, then those of its parts, in their order."""
    values: list[Any] = [getattr(answer, each.name) for each in answer.FIELDS]
    yield from (
        value
        for each, value in zip(answer.FIELDS, values, strict=True)
        if each.name.endswith("error_code") and value != ErrorCode.NONE
    )
    for value in values:
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Message):
                yield from errors_in(part)


def error_of(answer: Message) -> int:
    """The first error code of an answer, other than OPERATION_NOT_ATTEMPTED if there is another; NONE without errors."""
    codes = [*errors_in(answer)]
    return next(
        (code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED), next(iter(codes), ErrorCode.NONE)
    )
