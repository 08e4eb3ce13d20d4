"""The derived state of a log is compared with its batches: an error in each part is found."""

from collections.abc import Callable

import pytest

from linearizability.simulation.log_agreement import require_agreement
from linearizability.simulation.world import Violation
from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, Offset, ProducerId
from reference.storage.checkpoints import LEADER_EPOCHS, RECOVERY_POINTS, write_lines, write_offsets
from reference.storage.config import LogConfig
from reference.storage.log import Log
from tests.storage.logs import append, append_as, end_transaction, open_log

FIRST, SECOND, NEITHER = ProducerId(7), ProducerId(8), ProducerId(9)


def sound_log() -> Log:
    """Two epochs, two producers, committed, aborted and open transactions, several segments with full indexes."""
    log = open_log(config=LogConfig(segment_bytes=400, index_interval_bytes=0))
    append_as(log, FIRST, 0, transactional=True)
    append_as(log, SECOND, 0, transactional=True)
    end_transaction(log, FIRST, commit=False)
    for sequence in range(1, 9):
        append_as(log, SECOND, sequence, transactional=True)
    end_transaction(log, SECOND, commit=True)
    append_as(log, FIRST, 1, transactional=True)
    for epoch in (0, 1, 3, 3, 3):
        append(log, 2, epoch=epoch)
    return log


def compare(log: Log, is_cut: bool = False) -> None:
    require_agreement("t-0", log, is_cut)


def test_a_sound_log_agrees():
    log = sound_log()
    compare(log)
    assert log.segment_count > 3 and log._segments[0].offset_index.count and log._segments[0].time_index.count
    log.truncate_to(log.log_end_offset - 3)
    compare(log, is_cut=True)
    log.advance_log_start_offset(Offset(3))
    compare(log)
    log.close()
    compare(open_log(log._disk, log.config, clean=True, log_start=3))
    compare(open_log())


def test_a_transaction_may_have_begun_below_the_start_of_the_log():
    log = open_log()
    for sequence in (0, 1):
        append_as(log, FIRST, sequence, transactional=True)
    end_transaction(log, FIRST, commit=False)
    log.advance_log_start_offset(Offset(1))
    compare(log)
    log._segments[0].transaction_index.entries[0] = (
        log._segments[0].transaction_index.entries[0]._replace(last_offset=Offset(1))
    )
    with pytest.raises(Violation, match="transactions-disagree"):
        compare(log)


def _epoch_forgotten(log: Log) -> None:
    log._epochs.entries = log._epochs.entries[:1]


def _epoch_of_a_cut_log(log: Log) -> None:
    log._epochs.entries = [
        *log._epochs.entries,
        (LeaderEpoch(4), log.log_end_offset),
        (LeaderEpoch(5), log.log_end_offset + 2),
    ]


def _epochs_unwritten(log: Log) -> None:
    log.flush()
    write_lines(log._disk, log.folder / LEADER_EPOCHS, ["0 0"])


def _latest_epoch_kept(log: Log) -> None:
    log._epochs.latest = LeaderEpoch(9)


def _producer_forgotten(log: Log) -> None:
    del log._producers.producers[SECOND]


def _producer_of_a_cut_log(log: Log) -> None:
    log._producers.producers[NEITHER] = log._producers.producers[SECOND]


def _sequence_behind(log: Log) -> None:
    log._producers.producers[SECOND].batches.pop()


def _coordinator_epoch_forgotten(log: Log) -> None:
    log._producers.producers[SECOND].coordinator_epoch = LeaderEpoch(3)


def _duplicates_forgotten(log: Log) -> None:
    batches = log._producers.producers[SECOND].batches
    batches[0] = batches[0]._replace(first_sequence=77)


def _open_transaction_forgotten(log: Log) -> None:
    log._producers._ongoing.clear()


def _marker_of_a_cut_log(log: Log) -> None:
    log._producers._undecided.append((FIRST_OFFSET, log.log_end_offset))


def _snapshot_of_a_cut_log(log: Log) -> None:
    log._producers.end_offset = log.log_end_offset + 5
    log._producers.take_snapshot()


def _stale_snapshot(log: Log) -> None:
    newest = log._producers.snapshot_path(log._producers.snapshot_offsets()[-1])
    oldest = log._producers.snapshot_path(log._producers.snapshot_offsets()[0])
    log._disk.write_file(newest, log._disk.read_file(oldest))


def _aborted_forgotten(log: Log) -> None:
    for segment in log._segments:
        segment.transaction_index.entries = []


def _aborted_with_another_stable_offset(log: Log) -> None:
    segment = next(each for each in log._segments if each.transaction_index.entries)
    segment.transaction_index.entries = [segment.transaction_index.entries[0]._replace(last_stable_offset=3)]


def _aborted_in_another_segment(log: Log) -> None:
    segment = next(each for each in log._segments if each.transaction_index.entries)
    log._active.transaction_index.entries, segment.transaction_index.entries = segment.transaction_index.entries, []


def _index_entry_wrong(log: Log) -> None:
    index = log._segments[1].offset_index
    index._file.write_at(4, (3).to_bytes(4, "big"))


def _index_entry_of_a_cut_log(log: Log) -> None:
    log._active.offset_index.append(log.log_end_offset + 1, log._active.size)


def _time_index_entry_wrong(log: Log) -> None:
    log._segments[1].time_index._file.write_at(0, (5).to_bytes(8, "big"))


def _newest_timestamp_of_a_cut_log(log: Log) -> None:
    log._active.max_timestamp += 5


def _recovery_point_beyond(log: Log) -> None:
    log.recovery_point = log.log_end_offset + 1


def _written_recovery_point_beyond(log: Log) -> None:
    write_offsets(log._disk, log.folder.parent / RECOVERY_POINTS, {("t", 0): log.log_end_offset + 1})


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (_epoch_forgotten, "epochs-disagree"),
        (_epoch_of_a_cut_log, "epochs-disagree"),
        (_epochs_unwritten, "epochs-disagree"),
        (_latest_epoch_kept, "epochs-disagree"),
        (_producer_forgotten, "producers-disagree"),
        (_producer_of_a_cut_log, "producers-disagree"),
        (_sequence_behind, "producers-disagree"),
        (_coordinator_epoch_forgotten, "producers-disagree"),
        (_duplicates_forgotten, "producers-disagree"),
        (_open_transaction_forgotten, "transactions-disagree"),
        (_marker_of_a_cut_log, "transactions-disagree"),
        (_snapshot_of_a_cut_log, "snapshots-disagree"),
        (_stale_snapshot, "snapshots-disagree"),
        (_aborted_forgotten, "transactions-disagree"),
        (_aborted_with_another_stable_offset, "transactions-disagree"),
        (_aborted_in_another_segment, "transactions-disagree"),
        (_index_entry_wrong, "index-disagrees"),
        (_index_entry_of_a_cut_log, "index-disagrees"),
        (_time_index_entry_wrong, "index-disagrees"),
        (_newest_timestamp_of_a_cut_log, "index-disagrees"),
        (_recovery_point_beyond, "recovery-point-beyond-end"),
        (_written_recovery_point_beyond, "recovery-point-beyond-end"),
    ],
)
def test_each_wrong_part_is_found(spoil: Callable[[Log], None], rule: str):
    log = sound_log()
    spoil(log)
    with pytest.raises(Violation, match="t-0, from 0") as found:
        compare(log, is_cut=True)
    assert found.value.rule == rule
