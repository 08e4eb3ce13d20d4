"""Kafka's DumpLogSegments reads what we write, and finds fault with what we damage."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from reference.protocol.primitives import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.compression import Codec
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.config import LogConfig
from reference.storage.log import Log
from reference.storage.posix_disk import PosixDisk
from reference.storage.segment_list import LogIdentity
from tests.protocol.records.random_records import TIME, random_records
from tests.storage.dump import complaints, dump
from tests.storage.test_cleaning import compact, put

pytestmark = pytest.mark.java

CONFIG = LogConfig(segment_bytes=200_000, index_interval_bytes=500, segment_index_bytes=4096)


def written_log(folder: Path) -> Log:
    """A log of several segments with every kind of batch: codecs, headers, timestamps out of order, transactions."""
    chance = random.Random(8)
    log = Log(PosixDisk(), folder / "topic-0", CONFIG, TIME, LogIdentity("topic", 0))
    sequence = 0
    for step in range(150):
        records = random_records(chance)[:70]
        epoch = step // 60
        if step % 3:
            log.append_as_leader(build(records, codec=chance.choice(list(Codec))), LeaderEpoch(epoch), TIME)
            continue
        batch = build(records, producer=BatchProducer(ProducerId(9), ProducerEpoch(0), sequence, transactional=True))
        log.append_as_leader(batch, LeaderEpoch(epoch), TIME)
        sequence += len(records)
        if step % 2:
            marker = build_end_transaction(
                EndTransaction(step % 4 == 1, LeaderEpoch(1)), ProducerId(9), ProducerEpoch(0), TIME
            )
            log.append_as_leader(marker, LeaderEpoch(epoch), TIME, Origin.COORDINATOR)
    log.append_as_leader(
        build([Record(Offset(0), TIME, b"k", b"v")], producer=BatchProducer(ProducerId(7), ProducerEpoch(2), 4)),
        LeaderEpoch(2),
        TIME,
    )
    return log


def files_of(log: Log, *suffixes: str) -> list[Path]:
    return sorted(path for path in log.folder.iterdir() if path.suffix in suffixes)


@pytest.mark.parametrize("ending", ["closed", "running"])
def test_the_tool_reads_all_files(tmp_path: Path, ending: str) -> None:
    log = written_log(tmp_path)
    assert log.segment_count > 5
    if ending == "closed":
        log.close()
    logs = files_of(log, ".log")
    # The active segment's indexes are as long as they may become while the log runs: the tool, like us, takes the
    # zeros behind the entries for entries unless it receives the file's base offset; Kafka's own look the same.
    indexes = files_of(log, ".index", ".timeindex")
    if ending == "running":
        indexes = [path for path in indexes if path.stem != logs[-1].stem]
    text = dump(logs, "--deep-iteration", "--print-data-log")
    assert complaints(text) == []
    assert text.count("isvalid: true") == text.count("baseOffset:") > 150
    assert f"lastOffset: {log.log_end_offset - 1} " in text
    assert complaints(dump(indexes)) == []
    sane = dump(indexes, "--index-sanity-check")
    assert sane.count("passed sanity check") == len(indexes)
    assert complaints(dump(indexes, "--verify-index-only")) == []


def test_the_tool_reads_snapshots_and_aborted_transactions(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    log.close()
    snapshots = files_of(log, ".snapshot")
    assert len(snapshots) > 5
    text = dump([snapshots[-1]])
    assert complaints(text) == []
    assert "producerId: 7 producerEpoch: 2" in text
    assert "lastSequence: 4" in text
    aborted = files_of(log, ".txnindex")
    assert aborted
    text = dump(aborted)
    expected = log.aborted_transactions(Offset(0), log.log_end_offset)
    assert expected
    for transaction in expected:
        assert f"producerId: {transaction.producer_id} firstOffset: {transaction.first_offset}" in text


def test_the_tool_finds_fault(tmp_path: Path) -> None:
    """The tool reports damaged files, so that its silence is evidence."""
    log = written_log(tmp_path)
    log.close()
    indexes = files_of(log, ".index")
    data = bytearray(indexes[0].read_bytes())
    data[8 * 5 + 3] ^= 1
    indexes[0].write_bytes(bytes(data))
    assert complaints(dump([indexes[0]]))
    time_indexes = files_of(log, ".timeindex")
    data = bytearray(time_indexes[1].read_bytes())
    data[7] ^= 1
    time_indexes[1].write_bytes(bytes(data))
    assert complaints(dump([time_indexes[1]]))


def test_the_tool_reads_compacted_segments(tmp_path: Path) -> None:
    """Thinned, empty and repacked batches, delete horizons, and their indexes; the tool reports gaps alone."""
    log = written_log(tmp_path)
    whole = log.size_bytes
    log.config = replace(CONFIG, cleanup_policy="compact", delete_retention_ms=0)
    for round_ in range(2):
        put(log, ("last", str(round_)), time=TIME)
        compact(log, now=TIME + round_)
    assert log.size_bytes < whole * 2 / 3
    log.close()
    logs = files_of(log, ".log")
    text = dump(logs, "--deep-iteration", "--print-data-log")
    assert complaints(re.sub(r"Non-consecutive offsets in .*\n(\s*\d+ is followed by \d+\n)*", "", text)) == []
    assert text.count("isvalid: true") == text.count("baseOffset:") > 50
    assert "deleteHorizonMs: OptionalLong[" in text

    assert complaints(dump(files_of(log, ".index", ".timeindex"))) == []
    if aborted := files_of(log, ".txnindex"):
        assert complaints(dump(aborted)) == []
