"""The log cleaner: chooses the next log, compacts it tick by tick, and stores how far each log is clean.

Of all logs with cleanup.policy=compact it takes the one with the highest dirty ratio, and compacts it step by step:
MAX_BYTES_PER_TICK in a tick, so that requests wait no longer than that takes. When no log is due it looks again after
log.cleaner.backoff.ms. `cleaner-offset-checkpoint` stores up to which offset each log is clean.
Source: Kafka's documentation, "Log Compaction"; org.apache.kafka.storage.internals.log.LogCleaner, LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from reference.protocol.primitives import AT_ONCE, FIRST_OFFSET, Offset, TimestampMs
from reference.protocol.records.errors import RecordsError
from reference.storage.checkpoints import CLEANER_OFFSETS, TopicPartition, read_offsets, write_offsets
from reference.storage.cleanable import Cleanable, cleanable
from reference.storage.cleaning import Cleaning
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, LogError
from reference.storage.flushing import RunFlush, run_now
from reference.storage.log import Log

MAX_BYTES_PER_TICK = 64 * 1024
"""How much of a log is read in a tick, give or take a batch: a millisecond or two."""
MOST_FLUSHES = 2
FLUSH_LOOK_MS = 5
"""How often the cleaner looks whether a flush in another thread has ended."""
MOST_REST_MS = 86_400_000
"""The longest pause for log.cleaner.io.max.bytes.per.second, which may be 0."""
MOST_MAP_BYTES = (1 << 31) - 1
SET_ASIDE_MS = 60_000
"""How long a log is not tried again after a failed compaction: a damaged batch, or a disk error."""

Logger = Callable[[str, str], None]


class CleanerSettings(Protocol):
    """The broker's settings of the same names, after `log.cleaner.`; all but the first may change at any time."""

    @property
    def enable(self) -> bool: ...
    @property
    def backoff_ms(self) -> int: ...
    @property
    def dedupe_buffer_size(self) -> int: ...
    @property
    def io_buffer_load_factor(self) -> float: ...
    @property
    def io_max_bytes_per_second(self) -> float: ...


@dataclass(frozen=True)
class FixedCleanerSettings:
    """Settings that do not change; by default Kafka's."""

    enable: bool = True
    backoff_ms: int = 15_000
    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")


class Chosen(NamedTuple):
    """The log that is compacted next."""

    key: TopicPartition
    log: Log
    section: Cleanable
    end: Offset
    """The log must be durable up to here before its compaction."""
    shortened: int
    """The log's `times_shortened` when it was chosen."""
    flushes: int = 0
    """How many flushes the cleaner has waited for."""


class Cleaner:
    """Compacts the logs of one data folder, one at a time."""

    def __init__(self, disk: Disk, folder: Path, logs: Mapping[TopicPartition, Log], say: Logger) -> None:
        self.settings: CleanerSettings = FixedCleanerSettings()
        self.stable_end: Callable[[TopicPartition], Offset] = lambda key: FIRST_OFFSET
        """The last stable offset of a partition: nothing from there on is compacted."""
        self.run_flush: RunFlush = run_now
        """Runs the flush of a compacted segment."""
        self.cleaned_bytes = 0
        """Bytes of all compacted segments, before their compaction."""
        self._disk = disk
        self._path = folder / CLEANER_OFFSETS
        self._logs = logs
        self._say = say
        self._clean_to: dict[TopicPartition, Offset] = {}
        self._set_aside: dict[TopicPartition, TimestampMs] = {}
        self._job: tuple[TopicPartition, Cleaning, Iterator[int]] | None = None
        self._chosen: Chosen | None = None
        """The log to compact as soon as it is durable."""
        self._next = self._deadline = AT_ONCE
        """When the next step is due without throttling; and when `tick` has something to do, by the current settings."""
        self._rests_since: TimestampMs | None = None
        """When the pause of log.cleaner.backoff.ms began; None where `_next` counts."""
        self._worked_at = AT_ONCE
        self._spent = 0
        """Bytes read in the last tick, which the throttle counts."""

    def load(self, now: TimestampMs) -> None:
        """Read up to where each log was clean at the end of the last run. Errors: OSError."""
        self._next = self._deadline = now
        try:
            self._clean_to = read_offsets(self._disk, self._path)
        except CorruptFile as error:
            self._say("warning", f"{error}; it is taken for empty: what is clean is compacted once more")

    # ---- upkeep

    def tick(self, now: TimestampMs) -> None:
        """Choose a log that is due, or continue the current compaction. Errors are logged, not raised."""
        if not self.settings.enable or now < self._deadline:
            return
        self._rests_since, self._spent = None, 0
        try:
            if self._job is None:
                self._begin(now)
            if self._job is not None:
                self._go_on(now)
            elif self._chosen is not None:
                self._next = now + FLUSH_LOOK_MS
            else:
                self._rests_since = now
        except (OSError, LogError, RecordsError) as error:
            self._fail(error, now)
        self._deadline = self._due()

    def settings_changed(self) -> None:
        """Recompute the deadline, so that a pause under way follows the new settings."""
        self._deadline = self._due()

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` has something to do next; None for never."""
        return self._deadline if self.settings.enable else None

    def _due(self) -> TimestampMs:
        if self._rests_since is not None:
            return self._rests_since + self.settings.backoff_ms
        return max(self._next, self._worked_at + self._throttle_ms()) if self._spent else self._next

    def _throttle_ms(self) -> int:
        """The pause after the bytes of the last tick, by the current rate limit.

        Kafka accepts any number as the rate; at 0 its cleaner sleeps until the next change.
        """
        rate = self.settings.io_max_bytes_per_second
        if rate == 0:
            return MOST_REST_MS
        return int(min(1000 * self._spent / rate, MOST_REST_MS)) if rate > 0 else 0

    def _map_bytes(self) -> int:
        """How much memory the map of keys may take."""
        size = self.settings.dedupe_buffer_size * self.settings.io_buffer_load_factor
        return int(min(size, MOST_MAP_BYTES)) if size > 0 else 0

    def _begin(self, now: TimestampMs) -> None:
        """Start to compact the dirtiest log that is due, once it is durable. Errors: OSError, LogError.

        A removal that follows from a marker must not survive a crash that loses the marker. Recovery treats a gap above the
        recovery point as lost records.
        """
        chosen, self._chosen = self._chosen or self._choose(now), None
        if chosen is None:
            return
        log = chosen.log
        if self._logs.get(chosen.key) is not log or log.times_shortened != chosen.shortened:
            return
        if chosen.flushes < MOST_FLUSHES and not log.is_durable_to(chosen.end):
            log.begin_flush(now)
            if log.is_flushing:  # the first may have begun before
                self._chosen = chosen._replace(flushes=chosen.flushes + 1)
                return
        if self._disk.failure is not None:
            raise self._disk.failure
        cleaning = Cleaning(log, chosen.section, now, self._map_bytes(), self.run_flush)
        self._job = chosen.key, cleaning, cleaning.steps()
        log.checkpoint()

    def _choose(self, now: TimestampMs) -> Chosen | None:
        due = [(section.dirty_ratio, key, section) for key, section in self._sections(now)]
        if not due:
            return None
        _, key, section = max(due)
        log = self._logs[key]
        return Chosen(key, log, section, log.log_end_offset, log.times_shortened)

    def _sections(self, now: TimestampMs) -> Iterator[tuple[TopicPartition, Cleanable]]:
        for key, log in self._logs.items():
            if not log.config.compacts or self._set_aside.get(key, now) > now:
                continue
            section = cleanable(
                log.closed_segments,
                log.config,
                log.active_base,
                log.log_start_offset,
                self._clean_to.get(key, FIRST_OFFSET),
                min(self.stable_end(key), log.recovery_point),
                now,
            )
            if section.is_due(log.config):
                yield key, section

    def _go_on(self, now: TimestampMs) -> None:
        """Do one tick's part of the current compaction."""
        assert self._job is not None
        key, cleaning, steps = self._job
        if cleaning.is_stale:
            self._abandon()
            return
        spent = 0
        for worked in steps:
            spent += worked
            if spent >= MAX_BYTES_PER_TICK or cleaning.is_flushing:
                break
        rest_ms = FLUSH_LOOK_MS if cleaning.is_flushing else 0
        self._next, self._worked_at, self._spent = now + rest_ms, now, spent
        if cleaning.done is not None:
            self._job = None
            self.cleaned_bytes += cleaning.done.read_bytes
            self._note(key, cleaning.done.end)
            self._say("debug", f"{cleaning.log.folder.name}: compacted up to {cleaning.done.end}, {cleaning.done}")

    def _fail(self, error: Exception, now: TimestampMs) -> None:
        if self._job is not None:
            key = self._job[0]
            self._set_aside[key] = now + SET_ASIDE_MS
            self._say("error", f"{key[0]}-{key[1]} could not be compacted: {error}")
        else:
            self._say("error", f"no log could be compacted: {error}")
        self._rests_since = now
        self._abandon()

    def _abandon(self) -> None:
        if self._job is None:
            return
        cleaning, self._job = self._job[1], None
        try:
            cleaning.abandon()
        except OSError as error:
            self._say("warning", f"{cleaning.log.folder.name}: {error}; the next start removes what a compaction left")

    def works_on(self, key: TopicPartition) -> bool:
        """Whether this log is being compacted."""
        return self._job is not None and self._job[0] == key

    # ---- how far each log is clean

    def lower(self, key: TopicPartition, offset: Offset) -> None:
        """Treat a log as dirty from `offset` on, where its recovery point is there. Errors: OSError."""
        if self._clean_to.get(key, FIRST_OFFSET) > offset:
            self._note(key, offset)

    def forget(self, key: TopicPartition) -> None:
        """Drop the state of a deleted log, whose name may be used again. Errors: OSError."""
        if self._job is not None and self._job[0] == key:
            self._abandon()
        self._set_aside.pop(key, None)
        if self._clean_to.pop(key, None) is not None:
            write_offsets(self._disk, self._path, self._clean_to)

    def _note(self, key: TopicPartition, offset: Offset) -> None:
        """Store up to where a log is clean. Errors: OSError."""
        self._clean_to[key] = offset
        write_offsets(self._disk, self._path, self._clean_to)
