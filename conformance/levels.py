"""The level of a requirement follows from the harm of a broker that does not meet it.

A requirement's record says it in one line, `notices`: a kind, a colon, and the affected client or tool, with the evidence
(its use of the response). The kind determines the level, so that neither changes without the other. LEVELS.md explains the
method, and how to challenge a level.
"""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """How much a broker owes a requirement. A run fails by musts alone."""

    MUST = "must"
    """Without it a correct client or tool loses, misreads or duplicates data, hangs, or gives access to another client."""
    SHOULD = "should"
    """Without it a known client or tool misbehaves or shows something wrong; data are safe."""
    MAY = "may"
    """Kafka's habit: no client or tool was seen to depend on it."""


MUST, SHOULD, MAY = Level.MUST, Level.SHOULD, Level.MAY


class Kind(StrEnum):
    """What happens where a requirement does not hold; of several the gravest."""

    DATA = "data"
    """Records, committed offsets or the outcome of a transaction are lost, doubled, invented or put out of order."""
    MISREAD = "misread"
    """A correct client or tool takes one thing for another: bytes at a wrong place, another topic, a false position."""
    STUCK = "stuck"
    """A correct client or tool hangs, tries for ever, or gives up for good on what Kafka lets it do."""
    SECURITY = "security"
    """One client acts for another, gets what is not its own, or stops the service for all."""
    CLIENT = "client"
    """A client goes on, but later, with needless errors, or with a wrong message to its user."""
    TOOL = "tool"
    """A tool shows something wrong, lacks something, or refuses what is allowed."""
    OPERATOR = "operator"
    """An operator is misinformed, or must act where Kafka would have acted."""
    NONE_SEEN = "none seen"
    """No client or tool was seen to depend on it; the text says which were examined."""


LEVEL_OF = {
    Kind.DATA: MUST, Kind.MISREAD: MUST, Kind.STUCK: MUST, Kind.SECURITY: MUST,
    Kind.CLIENT: SHOULD, Kind.TOOL: SHOULD, Kind.OPERATOR: SHOULD,
    Kind.NONE_SEEN: MAY,
}  # fmt: skip
"""Kind -> its level."""

SHORTEST, LONGEST = 30, 115
"""The least and the most characters of `notices`, which is one line of code."""


def kind_of(notices: str) -> Kind:
    """The kind that the line begins with.

    Errors: ValueError where the line has no kind, or has fewer than SHORTEST or more than LONGEST characters.
    """
    name, colon, _ = notices.partition(": ")
    if not colon or name not in list(Kind):
        raise ValueError(f"{notices!r} begins with none of {', '.join(f'{kind}:' for kind in Kind)}")
    if not SHORTEST <= len(notices) <= LONGEST:
        raise ValueError(f"{notices!r} has {len(notices)} characters; {SHORTEST} to {LONGEST} are right")
    return Kind(name)
