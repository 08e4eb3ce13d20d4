"""What a decision of the active controller is made of.

A decision is taken on an image to which all earlier decisions were applied, those that are not committed yet included:
a leader's second proposal must be judged by what its first has made of the partition. So an active controller keeps an
image of its own (`MetadataImage.copy`), applies its records when it appends them, and throws it away with its reign.
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
