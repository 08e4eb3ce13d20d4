"""What a decision of the active controller is made of.

Decisions are made one at a time, each on the image to which all earlier ones are applied: a leader's second proposal must be
judged by what its first has made of the partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from reference.protocol.schema import Message

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """The records that make it true, to be appended as one batch, and the answer to give once they are committed."""

    records: list[Message]
    response: Answer
