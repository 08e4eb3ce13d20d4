"""A decision of the active controller: records and a response.

Decisions are made one at a time, each on an image with all earlier ones applied. So a leader's second proposal is checked
against the partition as its first one left it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from reference.protocol.schema import Message

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """The records, to be appended as one batch, and the response to send once they are committed."""

    records: list[Message]
    response: Answer
