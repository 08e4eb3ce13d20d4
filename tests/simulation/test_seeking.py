"""Results of look-ups by time are compared with the records, and broken look-ups are found in runs."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from linearizability.simulation.client_promises import ClientPromises
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Producer, Schedule, Seeker, Topic
from linearizability.simulation.seeking import MAX_TIMESTAMP, Found, _require_right
from linearizability.simulation.world import Violation, World
from reference.protocol.primitives import LeaderEpoch, Offset, TimestampMs
from reference.storage.segment import Segment

KEY = ("orders", 0)
TIMESTAMPS = {4: 10, 5: 30, 6: 20, 7: 30, 8: 40}


@pytest.mark.parametrize(
    "found",
    [
        Found(KEY, 10, 4, 10, 9),
        Found(KEY, 11, 5, 30, 0),
        Found(KEY, 35, 8, 40, 9),
        Found(KEY, 35, -1, -1, 8),
        Found(KEY, MAX_TIMESTAMP, 5, 30, 8),
        Found(KEY, MAX_TIMESTAMP, -1, -1, 9),
        Found(KEY, 5, 2, 5, 9),
        Found(KEY, 15, 6, 20, 9, log_start=6),
    ],
)
def test_right_results_are_accepted(found: Found):
    _require_right(found, 4, TIMESTAMPS, "client 1")


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (Found(KEY, 10, 5, 30, 9), "timestamp-not-first"),
        (Found(KEY, 11, 6, 20, 9), "timestamp-not-first"),
        (Found(KEY, 15, 6, 20, 9, log_start=5), "timestamp-not-first"),
        (Found(KEY, 35, -1, -1, 9), "timestamp-not-first"),
        (Found(KEY, 11, 5, 31, 9), "timestamp-wrong"),
        (Found(KEY, 11, 4, 10, 9), "timestamp-wrong"),
        (Found(KEY, 41, 9, 41, 9), "timestamp-wrong"),
        (Found(KEY, MAX_TIMESTAMP, 7, 30, 8), "timestamp-not-first"),
        (Found(KEY, MAX_TIMESTAMP, 5, 30, 9), "timestamp-wrong"),
    ],
)
def test_wrong_results_are_found(found: Found, rule: str):
    with pytest.raises(Violation) as broken:
        _require_right(found, 4, TIMESTAMPS, "client 1")
    assert broken.value.rule == rule


def test_a_look_up_that_passes_over_a_record_is_found(monkeypatch: pytest.MonkeyPatch):
    original = Segment.find_timestamp

    def passes_over(
        segment: Segment, timestamp: TimestampMs, from_offset: Offset
    ) -> tuple[TimestampMs, Offset, LeaderEpoch] | None:
        found = original(segment, timestamp, from_offset)
        return original(segment, timestamp, found[1] + 1) if found is not None else None

    monkeypatch.setattr(Segment, "find_timestamp", passes_over)
    schedule = Schedule(duration_ms=500, clients=(Producer(batches=20), Seeker(pause_ms=10)))
    assert run_schedule(schedule)[0].rule == "timestamp-not-first"


def test_its_run_can_be_explained():
    topic = Topic(name="orders", deletes=True)
    schedule = Schedule(duration_ms=200, topics=(topic,), clients=(Producer(batches=5), Seeker(pause_ms=10)))
    _, trace = run_schedule(schedule, keep_trace=True)
    assert any("DeleteRecords v" in text for *_, text in trace.events)


@pytest.mark.parametrize(
    ("end", "leader_epoch", "is_excused", "rule"),
    [
        (10, 3, False, ""),
        (11, 4, False, ""),
        (9, 3, False, "end-behind-commit"),
        (9, 4, False, "end-behind-commit"),
        (9, 2, False, ""),  # a leader that was deposed, and does not know
        (9, 3, True, ""),
    ],
)
def test_the_newest_leader_reports_no_end_behind_what_was_committed(
    end: int, leader_epoch: int, is_excused: bool, rule: str
):
    oracle = SimpleNamespace(committed_end=10, decided=SimpleNamespace(leader_epoch=3))
    checker: Any = SimpleNamespace(oracle={KEY: oracle}.get, excuses=lambda key: is_excused)
    promises = ClientPromises(World(1), cast(Schedule, None), (), checker)
    before = promises.committed_before(KEY)
    if not rule:
        promises.on_end(KEY, end, leader_epoch, before, "client 1")
        return
    with pytest.raises(Violation) as broken:
        promises.on_end(KEY, end, leader_epoch, before, "client 1")
    assert broken.value.rule == rule
