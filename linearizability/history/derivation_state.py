"""What a derivation keeps of a history: open operations and transactions, and how much there was."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from linearizability.history.facts import MAX_WAIT_US, NEVER, UNKNOWN, Outcome


@dataclass
class Invocation:
    """An operation that has no completion yet."""

    number: int
    process: int
    f: str
    time: int
    mops: list[dict[str, Any]]
    event: dict[str, Any]
    transaction: Transaction | None = None
    """The transaction within which it began."""


@dataclass
class Transaction:
    """A transaction recorded step by step: its facts wait for its end, which decides what became of them."""

    number: int
    process: int
    producer_name: Any
    producer_id: Any
    epoch: int
    invoked: int
    facts: list[dict[str, Any]] = field(default_factory=list)
    """Records sent, records polled and offsets committed within it."""
    written: set[str] = field(default_factory=set)
    """The partitions that it sends to."""
    commits: int = 0
    """Commits that were asked for and are not known to have failed."""
    commit_time: int = UNKNOWN
    became: Outcome | None = None
    """None while it is open."""
    completed: int = NEVER
    """When its end was answered."""


@dataclass
class Tally:
    """How much a history holds; what a verdict's reasons are made of."""

    operations: Counter[str] = field(default_factory=Counter)
    """`f:type` -> number of completions (`send:ok`, `poll:info`, ...); operations never answered count as info."""
    invocations: int = 0
    acknowledged: int = 0
    """Records whose send was acknowledged."""
    unanswered: int = 0
    """Records sent with acks=0, which are never acknowledged."""
    observed: int = 0
    """Records polled."""
    ends_at: int = UNKNOWN
    """When the last operation began or was answered; UNKNOWN where there was none."""

    def add(self, other: Tally) -> None:
        self.operations.update(other.operations)
        self.invocations += other.invocations
        self.acknowledged += other.acknowledged
        self.unanswered += other.unanswered
        self.observed += other.observed
        self.ends_at = max(self.ends_at, other.ends_at)


def microseconds_between(began: int, ended: int) -> int:
    """How long something took at most; MAX_WAIT_US stands for all that took longer or never began or ended."""
    if began == UNKNOWN or ended == NEVER:
        return MAX_WAIT_US
    return min(-(-max(ended - began, 0) // 1000), MAX_WAIT_US)
