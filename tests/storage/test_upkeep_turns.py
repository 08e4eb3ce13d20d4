"""The upkeep of many logs: a turn asks a part of them, all are asked in time, and what is due is not late."""

from __future__ import annotations

import random

import pytest

from reference.protocol.primitives import NEVER, TimestampMs
from reference.storage import upkeep_turns
from reference.storage.config import LogConfig
from reference.storage.flushing import PendingFlush, run_now
from reference.storage.log import Log
from reference.storage.log_directory import LogDirectory
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.upkeep_turns import UPKEEP_INTERVAL_MS
from tests.storage.logs import NOW, append
from tests.storage.test_log_directory import A, manager

A_TURN, OTHERS, LOGS, TURNS = 10, 3, 35, 4


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    monkeypatch.setattr(upkeep_turns, "LOGS_A_TURN", A_TURN)
    monkeypatch.setattr(upkeep_turns, "OTHERS_A_TURN", OTHERS)
    made = manager(SimulatedDisk())
    for partition in range(LOGS):
        append(made.get_or_create("t", partition, A, LogConfig(), NOW))
    return made


def asked(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    tick = Log.tick

    def counted(log: Log, now: TimestampMs) -> None:
        found.append(log.folder.name)
        tick(log, now)

    monkeypatch.setattr(Log, "tick", counted)
    return found


def test_each_log_is_asked_in_some_turns_and_few_in_one(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first all are new; then none has news, and a few are asked all the same."""
    found = asked(logs, monkeypatch)
    for turn in range(1, TURNS + 1):
        before = len(found)
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
        assert len(found) - before <= A_TURN
    assert len({*found}) == LOGS
    turns = -(-LOGS // OTHERS)
    del found[:]
    for turn in range(TURNS + 1, TURNS + 1 + turns):
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
    assert len(found) <= OTHERS * turns and len({*found}) >= LOGS - OTHERS


def test_what_is_due_is_done_in_time(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.get_or_create("t", 0, A, LogConfig(), NOW)
    for turn in range(1, 2 * TURNS + 1):
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
    now = NOW + 2 * TURNS * UPKEEP_INTERVAL_MS
    log.config = LogConfig(flush_ms=500)
    log.changed()  # as the node does
    for recovery_point in (1, 2):
        logs.tick(now := now + UPKEEP_INTERVAL_MS)
        assert log.recovery_point == recovery_point
        append(log)
    others = {log.folder.name for log in logs.logs.values()} - {"t-0"}
    found = asked(logs, monkeypatch)
    logs.tick(now + UPKEEP_INTERVAL_MS)
    assert "t-0" in found and len({*found} & others) <= OTHERS


@pytest.mark.parametrize("seed", range(30))
def test_a_log_with_something_to_do_sooner_says_so(seed: int) -> None:
    chance = random.Random(seed)
    logs = manager(SimulatedDisk())
    pending: list[PendingFlush] = []
    logs.run_flush = pending.append
    config = LogConfig(segment_bytes=300, flush_ms=chance.choice((NEVER, 700)), retention_bytes=600)
    log, now = logs.get_or_create("t", 0, A, config, NOW), NOW
    key, compared = ("t", 0), 0
    for _ in range(60):
        match chance.randrange(8):
            case 0 | 1 | 2:
                append(log, now=now)
            case 3:
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - chance.randrange(4)), now)
            case 4:
                log.delete_old_segments(now, log.log_end_offset)
            case 5:
                log.begin_flush(now)
            case 6 if pending:
                run_now(pending.pop(0))
            case _:
                logs.tick(now := now + UPKEEP_INTERVAL_MS)
        soonest = min((said for said, each in logs._turns._said if each == key), default=NEVER)
        if key not in logs._turns._changed:
            assert soonest <= log.next_deadline()
            compared += 1
    assert compared


def test_a_log_that_is_gone_is_not_asked(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.tick(NOW + UPKEEP_INTERVAL_MS)
    for partition in range(LOGS - 1):
        logs.delete(("t", partition), NOW)
    found = asked(logs, monkeypatch)
    for turn in range(2, 2 + TURNS):
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
    assert {*found} == {f"t-{LOGS - 1}"}


def test_repairs_and_compacted_segments_have_their_turn_at_once() -> None:
    logs = manager(SimulatedDisk())
    log = logs.get_or_create("t", 0, A, LogConfig(segment_bytes=300), NOW)
    for _ in range(20):
        append(log)
    for turn in range(1, 4):
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
    now, first = NOW + 4 * UPKEEP_INTERVAL_MS, log.closed_segments[0]
    assert ("t", 0) not in logs._turns._changed
    first.on_repair("an index is made again")
    assert ("t", 0) in logs._turns._changed
    logs.tick(now)
    log.replace_segments([first], log.new_cleaned_segment(first.base_offset, now), now)
    assert ("t", 0) in logs._turns._changed
