"""How each answer of a group coordinator says that it is not true.

A response has its error where its schema put it: at the top, or once for each thing that was asked for; there only what
went well until then is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitResponse
from reference.protocol.messages.sync_group import SyncGroupResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from reference.protocol.schema import Message


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """What a client is told of a write that was not committed in time: it may ask again."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.REQUEST_TIMED_OUT else code


def is_refused(response: Message) -> bool:
    """Whether a response has an error at its top."""
    return getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE


def refuse(response: Message, code: ErrorCode) -> None:
    """Make a response say that what it says was not done, or is not known to be."""
    code = coordinator_error(code)
    for each in _errors_of(response):
        if each.error_code == ErrorCode.NONE:
            each.error_code = code
    if isinstance(response, SyncGroupResponse):
        response.protocol_type = response.protocol_name = None
        response.assignment = b""


def _errors_of(response: Message) -> Iterable[Any]:
    match response:
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            return [partition for topic in response.topics for partition in topic.partitions]
        case _:
            return [response]
