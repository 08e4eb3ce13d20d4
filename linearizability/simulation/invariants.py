"""Checks a node after every step, and its logs from one incarnation to the next.

After each step only numbers that the node keeps are checked, which is cheap. Bytes are compared when a process ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from linearizability.simulation.batches import batches_in, header_of
from linearizability.simulation.world import Violation
from reference.node.node import Node
from reference.protocol.primitives import LeaderEpoch, Offset
from reference.protocol.records.errors import RecordsError
from reference.replication.partition import Partition
from reference.storage.log import Log, LogSlice

READ_BYTES = 1 << 20


class Seen(NamedTuple):
    """A partition's numbers after the last step."""

    log_start: int
    high_watermark: int
    log_end: int
    leader_epoch: int
    partition_epoch: int
    leader: int
    newest_epoch: int
    """The newest leader epoch that the log knows."""


MONOTONE = {
    "log-start-back": "log_start",
    "high-watermark-back": "high_watermark",
    "log-end-back": "log_end",
    "leader-epoch-back": "leader_epoch",
    "partition-epoch-back": "partition_epoch",
}
"""Rule -> the number that never decreases."""

MAY_GO_BACK = frozenset({"log-start-back", "high-watermark-back", "log-end-back"})
"""Rules whose number may decrease on a follower, or at a change of leader epoch."""


class Watch:
    """Compares each step of one node with the step before."""

    def __init__(self, name: str, retained: frozenset[str], number: int = 0, is_alone: bool = True) -> None:
        """`retained` are the topics whose retention may move the log's start; a node that is not alone also follows."""
        self._name = name
        self._number = number
        self._is_alone = is_alone
        self._retained = retained
        self._seen: dict[tuple[str, int], tuple[object, Seen]] = {}
        self.highest_end: dict[tuple[str, int], int] = {}
        """The highest log end that each partition ever had, over all incarnations."""
        self.cuts: Counter[tuple[str, int]] = Counter()
        """How often the log of each partition was seen to end earlier than before."""

    def forget(self) -> None:
        """Forget the last step: a new incarnation begins."""
        self._seen = {}

    def check(self, node: Node) -> list[Partition]:
        """Return the replicas whose numbers the step changed. Errors: Violation."""
        changed: list[Partition] = []
        seen = self._seen
        for key in node.replicas.offline:
            if len(node.logs.live) < len(node.logs.directories):
                break
            raise Violation("replica-offline", f"{self._name} cannot open it: {node.logs.offline.get(key)}")
        for key, partition in node.partitions.items():
            log, state = partition.log, partition.state
            now = (
                log.log_start_offset, partition.high_watermark, log.log_end_offset, state.leader_epoch,
                state.partition_epoch, state.leader, log.leader_epoch,
            )  # fmt: skip
            known = seen.get(key)
            if known is None or known[1] != now or known[0] is not partition:
                self._see(key, partition, Seen._make(now))
                changed.append(partition)
        if len(seen) > len(node.partitions):
            self._seen = {key: each for key, each in seen.items() if key in node.partitions}
        return changed

    def _see(self, key: tuple[str, int], partition: Partition, now: Seen) -> None:
        known = self._seen.get(key)
        if known is not None and known[0] is partition:
            self._compare(key, known[1], now)
            if now.log_end < known[1].log_end:
                self.cuts[key] += 1
        self._within(key, now)
        if partition.leading is not None and now.newest_epoch != now.leader_epoch:
            text = f"leads in leader epoch {now.leader_epoch}, and its log knows of {now.newest_epoch} as the newest"
            self._broken("own-epoch-forgotten", key, text)
        if partition.log.recovery_point > now.log_end:
            text = f"recovery point {partition.log.recovery_point}, and the log ends at {now.log_end}"
            self._broken("recovery-point-beyond-end", key, text)
        self._seen[key] = (partition, now)
        if now.log_end > self.highest_end.get(key, 0):
            self.highest_end[key] = now.log_end

    def _within(self, key: tuple[str, int], now: Seen) -> None:
        if not 0 <= now.log_start <= now.high_watermark <= now.log_end:
            self._broken(
                "offsets-out-of-order",
                key,
                f"log start {now.log_start}, high watermark {now.high_watermark}, log end {now.log_end}",
            )

    def _compare(self, key: tuple[str, int], before: Seen, now: Seen) -> None:
        for rule, name in self._monotone(before, now):
            was, is_ = getattr(before, name), getattr(now, name)
            if is_ < was:
                self._broken(rule, key, f"{name.replace('_', ' ')} went from {was} to {is_}")
        if now.log_start > before.log_start and key[0] not in self._retained:
            self._broken("records-dropped", key, f"log start went from {before.log_start} to {now.log_start} by itself")

    def _monotone(self, before: Seen, now: Seen) -> Iterable[tuple[str, str]]:
        """What must not go back: of a follower the log's end may, and with it the high watermark, by truncation."""
        if self._is_alone or (before.leader_epoch, before.leader) == (now.leader_epoch, now.leader) == (
            now.leader_epoch,
            self._number,
        ):
            return MONOTONE.items()
        return ((rule, name) for rule, name in MONOTONE.items() if rule not in MAY_GO_BACK)

    def _broken(self, rule: str, key: tuple[str, int], text: str) -> None:
        raise Violation(rule, f"{key[0]}-{key[1]} on {self._name}: {text}")


class BatchRecord(NamedTuple):
    """The parts of a batch that must never change."""

    base_offset: Offset
    next_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int


class LogRecord(NamedTuple):
    """A log's contents, and its flushed end."""

    start: int
    end: int
    flushed: int
    batches: list[BatchRecord]
    topic_id: UUID | None = None

    def up_to(self, end: int) -> LogRecord:
        """Return the part below an offset."""
        kept = [batch for batch in self.batches if batch.next_offset <= end]
        return self._replace(end=min(self.end, end), batches=kept)


def contents(log: Log) -> LogRecord:
    """Read a whole log. Errors: see `batches_of`."""
    batches = batches_of(log, log.log_start_offset)
    return LogRecord(log.log_start_offset, log.log_end_offset, log.recovery_point, batches, log.topic_id)


def batches_of(log: Log, offset: Offset) -> list[BatchRecord]:
    """Return the batches of a log from an offset on.

    Errors: Violation for bytes that are no batches, wrong checksums, gaps and overlaps.
    """
    name = f"{log.topic}-{log.partition}"
    batches: list[BatchRecord] = []
    try:
        while offset < log.log_end_offset:
            found = log.read(offset, READ_BYTES).records
            data = found.read() if isinstance(found, LogSlice) else found
            before = offset
            for batch in batches_in(data):
                header = header_of(batch)
                if header.base_offset > offset or header.next_offset <= offset:
                    text = f"offsets {header.base_offset} to {header.last_offset} where {offset} must follow"
                    raise Violation("offsets-not-dense", f"{name}: {text}")
                batches.append(BatchRecord(header.base_offset, header.next_offset, header.leader_epoch, header.crc))
                offset = header.next_offset
            if offset == before:
                raise Violation("log-unreadable", f"{name}: nothing can be read at {offset} of {log.log_end_offset}")
    except RecordsError as error:
        raise Violation("log-damaged", f"{name} at {offset}: {error}") from error
    except Violation:
        raise
    except Exception as error:
        raise Violation("log-unreadable", f"{name} at {offset} of {log.log_end_offset}: {error!r}") from error
    return batches


def require_prefix(name: str, before: LogRecord, after: LogRecord, least_end: int) -> None:
    """Require that `after` is a prefix of `before` that reaches at least `least_end`. Errors: Violation."""
    if after.end > before.end:
        raise Violation(
            "log-grew-in-restart", f"{name}: ended at {before.end} before and at {after.end} after a restart"
        )
    if after.start > before.start:
        raise Violation(
            "records-dropped", f"{name}: began at {before.start} before and at {after.start} after a restart"
        )
    if after.end < least_end:
        raise Violation(
            "log-lost-bytes",
            f"{name}: ended at {before.end}, of which {least_end} had to survive; after the restart it ends at {after.end}",
        )
    kept = {batch.base_offset: batch for batch in before.batches}
    for batch in after.batches:
        if batch.base_offset >= before.start and kept.get(batch.base_offset) != batch:
            raise Violation("log-changed-in-restart", f"{name}: {kept.get(batch.base_offset)} became {batch}")
