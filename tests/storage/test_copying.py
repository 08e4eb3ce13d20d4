"""A log's copy in another directory equals the log, through appends, truncations and deletions."""

from __future__ import annotations

import random

import pytest

from reference.protocol.primitives import LeaderEpoch, Offset
from reference.storage.config import LogConfig
from reference.storage.copying import copy_step
from reference.storage.log import Log
from tests.storage.logs import NOW, append, offsets, open_log

CONFIG = LogConfig(segment_bytes=1500, segment_index_bytes=2048)
MOST_STEPS = 100


def open_copy() -> Log:
    return open_log(config=CONFIG)


def finish(log: Log, copy: Log) -> None:
    for _ in range(MOST_STEPS):
        if copy_step(log, copy, NOW):
            return
    raise AssertionError("the copy does not come to an end")


def agree(log: Log, copy: Log) -> None:
    copy.take_epochs(log)
    assert copy.log_start_offset == log.log_start_offset and copy.log_end_offset == log.log_end_offset
    assert offsets(copy) == offsets(log)
    for offset in offsets(log):
        assert copy.epoch_at(offset) == log.epoch_at(offset)
    assert copy.leader_epoch == log.leader_epoch


def test_a_copy_begins_with_the_whole_batch_in_which_the_log_starts() -> None:
    log, copy = open_log(config=CONFIG), open_copy()
    for _ in range(6):
        append(log, 5)
    log.advance_log_start_offset(Offset(12))
    finish(log, copy)
    agree(log, copy)


def test_an_epoch_without_records_is_known_to_the_copy() -> None:
    log, copy = open_log(config=CONFIG), open_copy()
    append(log, epoch=3)
    log.assign_epoch_start(LeaderEpoch(5), log.log_end_offset)
    finish(log, copy)
    agree(log, copy)
    assert copy.end_offset_for_epoch(LeaderEpoch(3)) == log.end_offset_for_epoch(LeaderEpoch(3))


def test_a_truncation_of_the_log_truncates_the_copy() -> None:
    log, copy = open_log(config=CONFIG), open_copy()
    for epoch in (1, 1, 2, 4):
        append(log, 2, epoch=epoch)
    finish(log, copy)
    log.truncate_to(Offset(5))
    assert not copy_step(log, copy, NOW) or copy.log_end_offset == log.log_end_offset
    append(log, 3, epoch=6)
    finish(log, copy)
    agree(log, copy)


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_follows_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    log, copy, epoch = open_log(config=CONFIG), open_copy(), 0
    for _ in range(60):
        step = chance.randrange(8)
        if step < 4:
            append(log, chance.randrange(1, 5), epoch=epoch, size=chance.randrange(1, 200))
        elif step == 4:
            epoch += chance.randrange(1, 3)
            log.truncate_to(
                Offset(chance.randrange(max(log.log_start_offset, log.log_end_offset - 8), log.log_end_offset + 1))
            )
            log.assign_epoch_start(LeaderEpoch(epoch), log.log_end_offset)
        elif step == 5:
            log.advance_log_start_offset(Offset(chance.randrange(log.log_start_offset, log.log_end_offset + 1)))
            log.delete_old_segments(NOW, log.log_end_offset)
        else:
            copy_step(log, copy, NOW)
    append(log, epoch=epoch)
    finish(log, copy)
    agree(log, copy)
