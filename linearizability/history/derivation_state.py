"""The state of a derivation: open operations and transactions, consumers' sessions, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from linearizability.history.contract import Contract
from linearizability.history.event_fields import BadEvent
from linearizability.history.facts import MAX_WAIT_US, UNKNOWN, Flag, Outcome
from linearizability.history.keys import NEVER

PartitionKey = tuple[str, int]
"""Topic and partition."""


def is_poll(mop: Any) -> bool:
    return isinstance(mop, dict) and cast(dict[str, Any], mop).get("op") == "poll"


@dataclass
class Invocation:
    """An operation that has no completion yet."""

    number: int
    process: int
    f: str
    time: int
    mops: Any
    """A list of objects, one for each micro-operation; any value in a damaged line."""
    event: dict[str, Any]
    transaction: Transaction | None = None
    """The transaction within which it began."""

    @property
    def polls(self) -> bool:
        """Whether a micro-operation is a poll. False for a damaged line, which is reported where the operation is settled."""
        return isinstance(self.mops, list) and any(is_poll(mop) for mop in cast(list[Any], self.mops))


@dataclass
class Transaction:
    """A transaction recorded step by step: its facts wait for its end, which decides their outcome."""

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


class Sessions:
    """How often each process's position in a partition was changed from outside: it reads on only within one session."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, PartitionKey], int] = {}
        self._sought: set[tuple[int, PartitionKey]] = set()
        self._lost: dict[int, int] = {}
        """Process -> its last poll whose records are not known."""
        self._open_polls: dict[int, set[int]] = {}

    def flags(self, process: int, key: PartitionKey) -> int:
        """SOUGHT where the process has sought a position there, or lost it: it need not have read the records below."""
        return int(Flag.SOUGHT) if process in self._lost or (process, key) in self._sought else 0

    def number(self, process: int, key: PartitionKey) -> int:
        return self._numbers.setdefault((process, key), 0)

    def end(self, process: int, key: PartitionKey) -> None:
        self._numbers[process, key] = self._numbers.get((process, key), 0) + 1

    def end_of(self, process: int, chosen: Callable[[PartitionKey], bool]) -> None:
        """End those of a process's sessions whose partition is chosen."""
        for who, key in list(self._numbers):
            if who == process and chosen(key):
                self.end(process, key)

    def poll_begins(self, process: int, operation: int) -> None:
        self._open_polls.setdefault(process, set()).add(operation)

    def ends(self, invocation: Invocation) -> None:
        """End a poll or commit: an earlier poll of the process without a completion makes its position unknown."""
        if not invocation.polls and invocation.f != "commit":
            return
        polls = self._open_polls.get(invocation.process, set())
        polls.discard(invocation.number)
        if earlier := {other for other in polls if other < invocation.number}:
            polls -= earlier
            self.lose(invocation.process, max(earlier))

    def lose(self, process: int, operation: int) -> None:
        """Record that a poll's records, and so the process's next position, are not known."""
        self.end_of(process, lambda _: True)
        self._lost[process] = operation

    def outcome_of_drain(self, common: dict[str, Any]) -> int:
        """The outcome of a final read: unknown where the records of a poll within it are not known, for it may have returned
        records that are not recorded."""
        polls = self._open_polls.get(common["process"], set())
        last = max([self._lost.get(common["process"], UNKNOWN), *polls])
        return (
            int(Outcome.INFO) if last > common["operation"] and common["outcome"] == Outcome.OK else common["outcome"]
        )

    def seek(self, process: int, key: PartitionKey, passes_nothing: bool) -> None:
        self.end(process, key)
        if not passes_nothing:
            self._sought.add((process, key))


@dataclass
class Tally:
    """Counts of a history, for a verdict's reasons."""

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


def producing_flags(contract: Contract, acks: str) -> int:
    """The flags of a send. Errors: BadEvent for unknown `acks`."""
    if acks not in ("0", "1", "all"):
        raise BadEvent(f"acks={acks!r} is none of 0, 1, all")
    flags = {"0": Flag.UNANSWERED, "1": Flag(0), "all": Flag.ACKS_ALL}[acks]
    if contract.idempotence and acks == "all":
        flags |= Flag.IDEMPOTENT | Flag.ORDERED
    if contract.max_in_flight <= 1:
        flags |= Flag.ORDERED
    return int(flags)


def microseconds_between(began: int, ended: int) -> int:
    """How long something took at most; MAX_WAIT_US stands for all that took longer or never began or ended."""
    if began == UNKNOWN or ended == NEVER:
        return MAX_WAIT_US
    return min(-(-max(ended - began, 0) // 1000), MAX_WAIT_US)
