"""A decision of the active controller: records and a response.

Decisions are made one at a time, each on the image to which all earlier ones are applied: a leader's second proposal is judged
against the partition that its first one has changed.
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
