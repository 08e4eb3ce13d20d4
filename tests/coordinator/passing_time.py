"""Time that passes for a group shard, timer by timer."""

from typing import Protocol

from reference.coordinator.group_shard import GroupShard
from reference.protocol.primitives import TimestampMs


class Timed(Protocol):
    """A shard and its clock, in ms."""

    now: TimestampMs

    @property
    def shard(self) -> GroupShard: ...


def advance(room: Timed, end: TimestampMs) -> None:
    """Let time pass until `end`, and run the timers that become due."""
    for _ in range(10_000):
        due = room.shard.next_deadline()
        if due is None or due > end:
            break
        room.now = max(room.now, due)
        room.shard.tick(room.now)
    room.now = end
