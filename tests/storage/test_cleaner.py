"""The log cleaner: choice of the log, share of a tick, checkpoint, and interruptions."""

import errno
import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from reference.protocol.primitives import Offset, TimestampMs
from reference.storage import cleaner as cleaner_module
from reference.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from reference.storage.cleaner import FLUSH_LOOK_MS, MAX_BYTES_PER_TICK, SET_ASIDE_MS, FixedCleanerSettings
from reference.storage.config import LogConfig
from reference.storage.flushing import PendingFlush
from reference.storage.log import Log
from reference.storage.log_directory import LogDirectory
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.logs import NOW, append, names, offsets
from tests.storage.test_cleaning import put, rows
from tests.storage.test_log_directory import ROOT, A, B, manager

COMPACT = LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_index_bytes=4096)
BACKOFF_MS = 1000


def cleaning(disk: SimulatedDisk, **settings: Any) -> LogDirectory:
    made = manager(disk)
    made.cleaner.settings = FixedCleanerSettings(**{"backoff_ms": BACKOFF_MS, **settings})
    made.cleaner.stable_end = lambda key: made.logs[key].log_end_offset
    return made


def dirty(made: LogDirectory, topic: str, id: UUID = A, segments: int = 4, config: LogConfig = COMPACT) -> Log:
    """A log whose closed segments hold one key."""
    log = made.get_or_create(topic, 0, id, config, NOW)
    for number in range(segments):
        put(log, ("k", str(number)))
        log.roll(NOW)
    log.flush()
    return log


def run(made: LogDirectory, now: int, ticks: int = 20) -> None:
    for _ in range(ticks):
        made.cleaner.tick(TimestampMs(now))


def checkpoint(disk: SimulatedDisk) -> dict[tuple[str, int], Offset]:
    return read_offsets(disk, ROOT / CLEANER_OFFSETS)


def test_it_compacts_and_remembers_how_far(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    log = dirty(made, "a")
    kept = made.get_or_create("kept", 0, B, LogConfig(), NOW)
    append(kept, 2)
    kept.roll(NOW)
    made.tick(NOW)
    run(made, NOW)
    assert rows(log) == [(3, "k", "3")]
    assert offsets(kept) == [0, 1]
    assert disk.read_file(ROOT / CLEANER_OFFSETS) == b"0\n1\na 0 4\n"
    assert made.cleaner.cleaned_bytes > 0
    made.shut_down({("a", 0): Offset(4)}, NOW)

    again = cleaning(disk)
    log = again.get_or_create("a", 0, A, COMPACT, NOW)
    run(again, NOW)
    assert again.cleaner.cleaned_bytes == 0
    assert rows(log) == [(3, "k", "3")]


def test_it_looks_again_after_the_backoff() -> None:
    made = cleaning(SimulatedDisk())
    log = dirty(made, "a", segments=0)
    run(made, NOW)
    put(log, ("k", "1"), ("k", "2"))
    log.roll(NOW)
    log.flush()
    assert made.cleaner.next_deadline() == NOW + BACKOFF_MS
    run(made, NOW + BACKOFF_MS - 1)
    assert len(rows(log)) == 2
    run(made, NOW + BACKOFF_MS)
    assert len(rows(log)) == 1


def test_the_dirtiest_log_comes_first(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.3)
    half, all_dirty = dirty(made, "half", A, 2, config), dirty(made, "z", B, 2, config)
    run(made, NOW)
    for _ in range(2):
        put(half, ("other", "1"))
        half.roll(NOW)
    half.flush()
    dirty(made, "z", B, 6, config)
    made.cleaner.tick(NOW + BACKOFF_MS)
    assert checkpoint(disk) == {("half", 0): 2, ("z", 0): 8}
    assert all_dirty.segment_count == 2
    run(made, NOW + BACKOFF_MS)
    assert checkpoint(disk) == {("half", 0): 4, ("z", 0): 8}


def test_a_tick_does_no_more_than_its_share(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BYTES_PER_TICK <= 1 << 20
    monkeypatch.setattr(cleaner_module, "MAX_BYTES_PER_TICK", 100)
    made = cleaning(disk)
    log = dirty(made, "a", segments=10)
    ticks = 0
    while not checkpoint(disk):
        assert made.cleaner.next_deadline() == NOW if ticks else True
        made.cleaner.tick(NOW)
        ticks += 1
        assert ticks < 100
    size = 70 * 10
    assert ticks >= 2 * size / 200
    assert len(rows(log)) == 1


def test_bytes_per_second_are_limited() -> None:
    made = cleaning(SimulatedDisk(), io_max_bytes_per_second=100.0)
    dirty(made, "a", segments=10)
    made.cleaner.tick(NOW)
    worked = 2 * 10 * 70
    assert made.cleaner.next_deadline() == NOW + 10 * worked


def test_nothing_is_compacted_when_it_is_switched_off() -> None:
    made = cleaning(SimulatedDisk(), enable=False)
    log = dirty(made, "a")
    run(made, NOW + BACKOFF_MS)
    assert len(rows(log)) == 4
    assert made.cleaner.next_deadline() is None


def test_a_log_that_is_deleted_is_forgotten(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    dirty(made, "a")
    run(made, NOW)
    made.delete(("a", 0), NOW)
    assert checkpoint(disk) == {}
    log = dirty(made, "a", B, 8)
    made.cleaner.tick(NOW + BACKOFF_MS)
    assert rows(log) == [(7, "k", "7")]


@pytest.mark.parametrize("end", ["delete", "truncate", "policy"])
def test_a_compaction_in_the_middle_ends_with_its_log(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "MAX_BYTES_PER_TICK", 1)
    disk = SimulatedDisk()
    made = cleaning(disk)
    log = dirty(made, "a")
    run(made, NOW, 6)
    assert names(log, ".log.cleaned") and made.cleaner.works_on(("a", 0))
    if end == "delete":
        made.delete(("a", 0), NOW)
        assert not made.cleaner.works_on(("a", 0))
    elif end == "truncate":
        log.truncate_to(Offset(3))
    else:
        log.config = LogConfig()
    run(made, NOW + BACKOFF_MS, 30)
    if end == "truncate":
        log.roll(NOW)
        log.flush()
        run(made, NOW + 2 * BACKOFF_MS, 30)
        assert rows(log) == [(2, "k", "2")]
    elif end == "policy":
        assert len(rows(log)) == 4
    if end == "delete":
        assert made.cleaner.cleaned_bytes == 0 and checkpoint(disk) == {}
    else:
        assert not names(log, ".cleaned")


def test_what_is_cut_off_is_not_clean_any_more(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    log = dirty(made, "a")
    run(made, NOW)
    log.truncate_to(Offset(2))
    assert checkpoint(disk)["a", 0] <= 2, "what lies behind the cut, or behind the last whole batch, is cleaned again"


def test_a_log_that_fails_is_set_aside_and_the_others_go_on(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    bad, good = dirty(made, "a", A), dirty(made, "b", B, 3)
    file = disk.map_file(bad.folder / names(bad, ".log")[1])
    file.write_at(65, b"\x55")
    said: list[str] = []
    made.cleaner._say = lambda level, text: said.append(text) if level == "error" else None
    run(made, NOW)
    run(made, NOW + BACKOFF_MS)
    assert len(said) == 1
    assert "a-0 could not be compacted" in said[0]
    assert rows(good) == [(2, "k", "2")]
    assert not names(bad, ".cleaned")
    run(made, NOW + SET_ASIDE_MS + BACKOFF_MS)
    assert len(said) == 2


def test_a_power_failure_right_after_a_compaction_takes_nothing() -> None:
    """The recovery point that allows the gaps is written before them."""
    for seed in range(20):
        disk = SimulatedDisk()
        disk.make_folder(ROOT)
        disk.sync_folder(ROOT.parent)
        made = cleaning(disk)
        log = dirty(made, "a", segments=6, config=replace(COMPACT, segment_bytes=150))
        disk.sync_folder(ROOT)
        run(made, NOW)
        before = rows(log)
        disk.lose_power(random.Random(seed))
        again = cleaning(disk).get_or_create("a", 0, A, COMPACT, NOW)
        assert (rows(again), again.log_end_offset) == (before, 6)


def test_it_goes_on_when_others_have_waited_for_the_disk(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    log = dirty(made, "a")
    put(log, ("k", "4"))
    waiting: list[PendingFlush] = []
    made.run_flush = waiting.append
    for flushes, now in ((1, NOW), (2, NOW + 100)):
        run(made, now)
        assert len(waiting) == flushes and made.cleaner.next_deadline() == now + FLUSH_LOOK_MS
        run(made, now + FLUSH_LOOK_MS)
        assert len(waiting) == flushes and len(rows(log)) == 5, (
            "one flush for all of the log, one for what is compacted"
        )
        waiting[-1].run()
        waiting[-1].finish()
    run(made, NOW + 200)
    assert rows(log) == [(3, "k", "3"), (4, "k", "4")]
    assert len(waiting) == 2 and log.recovery_point == 5


def test_a_log_that_is_deleted_while_others_wait_for_the_disk_is_not_compacted() -> None:
    for flushes in (1, 2):
        disk = SimulatedDisk()
        made = cleaning(disk)
        log = dirty(made, "a")
        put(log, ("k", "4"))
        waiting: list[PendingFlush] = []
        made.run_flush = waiting.append
        run(made, NOW)
        if flushes == 2:
            waiting[0].finish()
            run(made, NOW + FLUSH_LOOK_MS)
        made.delete(("a", 0), NOW)
        waiting[-1].finish()
        run(made, NOW + BACKOFF_MS)
        assert len(waiting) == flushes and made.cleaner.cleaned_bytes == 0


def test_a_compaction_whose_flush_fails_puts_nothing_in_place(disk: SimulatedDisk) -> None:
    made = cleaning(disk)
    log = dirty(made, "a")
    waiting: list[PendingFlush] = []
    made.run_flush = waiting.append
    run(made, NOW)
    waiting[0].finish(OSError(errno.EIO, "Input/output error"))
    run(made, NOW + FLUSH_LOOK_MS)
    assert len(rows(log)) == 4 and disk.failure is not None and made.cleaner.cleaned_bytes == 0
