"""Invariants of a node from step to step, and of a log after a restart."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.invariants import BatchRecord, LogRecord, Watch, require_prefix
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.world import Violation
from reference.protocol.primitives import LeaderEpoch, Offset


def node(start: int = 0, high_watermark: int = 5, end: int = 5, epoch: int = 1, recovery_point: int = 0) -> Any:
    log = SimpleNamespace(log_start_offset=start, log_end_offset=end, recovery_point=recovery_point, leader_epoch=epoch)
    partition = SimpleNamespace(
        log=log,
        leading=None,
        high_watermark=high_watermark,
        state=SimpleNamespace(leader_epoch=epoch, partition_epoch=epoch, leader=0),
    )
    return SimpleNamespace(partitions={("orders", 0): partition}, replicas=SimpleNamespace(offline={}))


def set_to(shown: Any, start: int, high_watermark: int, end: int, epoch: int) -> None:
    partition = shown.partitions["orders", 0]
    partition.log.log_start_offset, partition.log.log_end_offset = start, end
    partition.high_watermark, partition.state.leader_epoch = high_watermark, epoch


@pytest.mark.parametrize(
    ("shown", "rule"),
    [
        ((0, 4, 5, 1), "high-watermark-back"),
        ((0, 4, 4, 1), "log-end-back|high-watermark-back"),
        ((0, 6, 5, 1), "offsets-out-of-order"),
        ((6, 5, 5, 1), "offsets-out-of-order|records-dropped"),
        ((1, 5, 5, 1), "records-dropped"),
        ((0, 5, 5, 0), "leader-epoch-back"),
    ],
)
def test_a_forbidden_step_is_a_violation(shown: tuple[int, int, int, int], rule: str):
    watch, under_watch = Watch("node 0", frozenset()), node()
    watch.check(under_watch)
    set_to(under_watch, *shown)
    with pytest.raises(Violation, match=rule):
        watch.check(under_watch)


def test_a_recovery_point_is_within_the_log():
    with pytest.raises(Violation, match="recovery-point-beyond-end"):
        Watch("node 0", frozenset()).check(node(recovery_point=6))


def test_allowed_steps_are_accepted():
    watch, under_watch = Watch("node 0", frozenset({"orders"})), node()
    watch.check(under_watch)
    for shown in ((0, 5, 6, 1), (0, 6, 6, 2), (3, 6, 6, 2)):
        set_to(under_watch, *shown)
        watch.check(under_watch)
    assert watch.highest_end["orders", 0] == 6
    watch.forget()
    watch.check(node(high_watermark=2, end=2, epoch=3))
    assert watch.highest_end["orders", 0] == 6, "what a log once held is remembered over restarts"


def batch(start: int, end: int, epoch: int, crc: int) -> BatchRecord:
    return BatchRecord(Offset(start), Offset(end), LeaderEpoch(epoch), crc)


BATCHES = [batch(0, 3, 1, 7), batch(3, 5, 1, 8), batch(5, 9, 2, 9)]
BEFORE = LogRecord(0, 9, 5, BATCHES)


@pytest.mark.parametrize(
    ("after", "least", "rule"),
    [
        (LogRecord(0, 3, 3, BATCHES[:1]), 5, "log-lost-bytes"),
        (LogRecord(0, 10, 10, BATCHES), 5, "log-grew"),
        (LogRecord(3, 9, 9, BATCHES[1:]), 5, "records-dropped"),
        (LogRecord(0, 5, 5, [BATCHES[0], batch(3, 5, 1, 99)]), 5, "log-changed"),
        (LogRecord(0, 5, 5, [batch(0, 5, 1, 7)]), 5, "log-changed"),
    ],
)
def test_a_forbidden_restart_is_a_violation(after: LogRecord, least: int, rule: str):
    with pytest.raises(Violation, match=rule):
        require_prefix("orders-0", BEFORE, after, least)


@pytest.mark.parametrize("kept", [2, 3])
def test_a_restart_may_keep_a_prefix(kept: int):
    require_prefix("orders-0", BEFORE, LogRecord(0, BATCHES[kept - 1].next_offset, 0, BATCHES[:kept]), 5)


@pytest.mark.parametrize(
    ("module", "written", "rule"),
    [
        ("log_directory:LogDirectory", "checkpoint_high_watermarks", "checkpoint-beyond-high-watermark"),
        ("epoch_cache:EpochCache", "_replace", "own-epoch-forgotten"),
        ("transaction_index:TransactionIndex", "append", "transactions-disagree"),
    ],
)
def test_a_wrong_file_is_found_in_a_run(monkeypatch: pytest.MonkeyPatch, module: str, written: str, rule: str):
    path, _, name = module.partition(":")
    owner = getattr(importlib.import_module(f"reference.storage.{path}"), name)
    original = getattr(owner, written)

    def checkpoint(directory: Any, high_watermarks: dict[Any, int]) -> None:
        original(directory, {key: each + 1 for key, each in high_watermarks.items()})

    def replace(cache: Any, entries: list[tuple[int, int]]) -> None:
        cache.entries = entries

    def append(index: Any, aborted: Any) -> None:
        original(index, aborted._replace(last_stable_offset=aborted.first_offset))

    wrong = {"checkpoint_high_watermarks": checkpoint, "_replace": replace, "append": append}
    monkeypatch.setattr(owner, written, wrong[written])
    assert run_schedule(draw(1, None, 1, "transactions"))[0].rule == rule
