"""The upkeep of many logs: a turn asks a part of them, all are asked in time, and what is due is not late."""

from __future__ import annotations

from collections import Counter

import pytest

from reference.protocol.primitives import TimestampMs
from reference.storage import upkeep_turns
from reference.storage.config import LogConfig
from reference.storage.log import Log
from reference.storage.log_directory import LogDirectory
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.upkeep_turns import UPKEEP_INTERVAL_MS
from tests.storage.logs import NOW, append
from tests.storage.test_log_directory import A, manager

A_TURN, LOGS, TURNS = 10, 35, 4


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    monkeypatch.setattr(upkeep_turns, "LOGS_A_TURN", A_TURN)
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
    found = asked(logs, monkeypatch)
    for turn in range(1, 2 * TURNS + 1):
        before = len(found)
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
        assert len(found) - before <= A_TURN
    assert {*Counter(found).values()} == {2} and len({*found}) == LOGS


def test_what_is_due_is_done_in_time(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(logs, monkeypatch)
    log = logs.get_or_create("t", 0, A, LogConfig(), NOW)
    for turn in range(1, TURNS + 1):
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
    now = NOW + TURNS * UPKEEP_INTERVAL_MS
    log.config = LogConfig(flush_ms=500)
    while found.count("t-0") < 2:
        now += UPKEEP_INTERVAL_MS
        logs.tick(now)
    assert log.recovery_point == 1
    append(log)
    for turn in range(1, TURNS + 1):
        logs.tick(now + turn * UPKEEP_INTERVAL_MS)
    assert log.recovery_point == 2


def test_a_log_that_is_gone_is_not_asked(logs: LogDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.tick(NOW + UPKEEP_INTERVAL_MS)
    for partition in range(LOGS - 1):
        logs.delete(("t", partition), NOW)
    found = asked(logs, monkeypatch)
    for turn in range(2, 2 + TURNS):
        logs.tick(NOW + turn * UPKEEP_INTERVAL_MS)
    assert {*found} == {f"t-{LOGS - 1}"} and len(found) == TURNS
