"""One folder, two brokers: we open what Apache Kafka wrote, and Apache Kafka serves what we wrote."""

import contextlib
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]
from confluent_kafka.cimpl import NewTopic

from linearizability.targets import open_target
from linearizability.targets.kafka import KafkaCluster
from reference.protocol.primitives import LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import build, read_all_records, read_batches
from reference.protocol.records.compression import Codec
from reference.protocol.records.record import Record
from reference.storage.checkpoints import read_meta_properties, read_topic_id
from reference.storage.config import LogConfig
from reference.storage.log import Log
from reference.storage.log_directory import METADATA_TOPIC, LogDirectory
from reference.storage.posix_disk import PosixDisk
from reference.storage.segment_list import LogIdentity
from tests.protocol.records.random_records import random_records
from tests.storage.dump import complaints, dump
from tests.storage.log_model import copied
from tests.storage.test_cleaning import compact
from tests.waiting import await_true

pytestmark = [pytest.mark.kafka, pytest.mark.java]

RELEASE = "4.3.1"
TOPIC = "shared"
NOTHING_MORE: Mapping[str, str] = {}
Read = tuple[int, int, bytes | None, bytes | None]


@contextlib.contextmanager
def kafka(folder: Path, more: Mapping[str, str] = NOTHING_MORE) -> Iterator[KafkaCluster]:
    config = {"log.segment.bytes": str(1 << 20), "num.partitions": "1", "log.index.interval.bytes": "1000", **more}
    with open_target(f"kafka:{RELEASE}", folder=folder, config=config) as target:
        yield cast(KafkaCluster, target)


def create(target: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)


def produce_everything(target: KafkaCluster) -> None:
    """Each codec, idempotent and not, a committed and an aborted transaction; three segments' worth.

    The records of transactions are dated before all others, so that only a marker is as late as the last of the others.
    """
    chance = random.Random(3)
    common = {"bootstrap.servers": target.bootstrap, "linger.ms": 20, "acks": "all"}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(common | {"compression.type": codec, "enable.idempotence": codec != "gzip"})
        for index in range(150):
            producer.produce(
                TOPIC, key=f"{codec}{index}", value=chance.randbytes(3000), headers=[("h", b"x"), ("n", None)]
            )
        assert producer.flush(30) == 0
    for committed in (True, False, True):
        producer = Producer(common | {"transactional.id": f"t{committed}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for index in range(50):
            producer.produce(TOPIC, key=f"t{index}", value=b"in a transaction", timestamp=1_700_000_000_000 + index)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if committed else producer.abort_transaction(30)
    for committed in (True, False):  # it is answered when the markers of the transaction before it are written
        Producer(common | {"transactional.id": f"t{committed}"}).init_transactions(30)


def consume(target: KafkaCluster, isolation: str) -> list[Read]:
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "g",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[Read] = []
    try:
        for _ in range(100_000):
            message: Any = consumer.poll(20)
            assert message is not None, "the end was not reached within 20 s"
            if message.error():
                if message.error().name() == "_PARTITION_EOF":
                    return found
                raise KafkaException(message.error())
            found.append((message.offset(), message.timestamp()[1], message.key(), message.value()))
        raise AssertionError("no end")
    finally:
        consumer.close()


def offsets_by_timestamp(target: KafkaCluster, timestamps: set[int]) -> dict[int, tuple[int, int]]:
    """Timestamp -> timestamp and offset of the first record as late that Kafka lists, also a marker; or -1, -1."""
    admin, found = AdminClient({"bootstrap.servers": target.bootstrap}), {}
    for timestamp in timestamps:
        where = TopicPartition(TOPIC, 0)
        listed = admin.list_offsets({where: OffsetSpec.for_timestamp(timestamp)})[where].result(30)
        found[timestamp] = (listed.timestamp, listed.offset)
    return found


def all_records(log: Log) -> list[Read]:
    """The records that an application would read, batch by batch from many offsets."""
    found: list[Read] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 100_000).records
        data = records if isinstance(records, bytes) else records.read()
        for batch in read_batches(data):
            offset = batch.header.next_offset
            if not batch.header.is_control:
                found += [(r.offset, r.timestamp, copied(r.key), copied(r.value)) for r in read_all_records(batch.data)]
    return found


def without_aborted(log: Log, records: list[Read]) -> list[Read]:
    aborted = log.aborted_transactions(Offset(0), log.log_end_offset)
    return [r for r in records if not any(a.first_offset <= r[0] <= a.last_offset for a in aborted)]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_we_open_what_kafka_wrote(tmp_path: Path, ending: str) -> None:
    disk = PosixDisk()
    with kafka(tmp_path / "kafka") as target:
        create(target)
        produce_everything(target)
        uncommitted, committed = consume(target, "read_uncommitted"), consume(target, "read_committed")
        times = {timestamp for _, timestamp, _, _ in uncommitted[::37]}
        latest = max(timestamp for _, timestamp, _, _ in uncommitted)
        listed = offsets_by_timestamp(target, times | {latest + 1, latest + 3_600_000})
        member = target.members[0]
        target.stop(1) if ending == "stop" else target.kill(1)
        data = tmp_path / "data"
        shutil.copytree(member.data, data)
        shutil.copytree(member.data, tmp_path / "kafkas")
    assert len(uncommitted) == 900
    meta = read_meta_properties(disk, data)
    assert meta is not None
    assert meta.node_id == member.node.id
    manager = LogDirectory(disk, data)
    manager.load(TimestampMs(0))
    assert (manager.last_broker_epoch is not None) == (ending == "stop")
    topic_id = read_topic_id(disk, data / f"{TOPIC}-0")
    assert topic_id is not None
    log = manager.get_or_create(TOPIC, 0, topic_id, LogConfig(segment_bytes=1 << 20), TimestampMs(0))
    assert log.lost_bytes == 0
    assert (log.recovered_bytes > 0) == (ending == "kill")
    assert log.segment_count >= 2
    assert all_records(log) == uncommitted
    assert without_aborted(log, uncommitted) == committed
    assert len(committed) == 850
    assert len(log.active_producers()) >= 5
    assert log.leader_epoch == 0
    for offset, *_ in uncommitted[::37]:
        found = log.read(Offset(offset), 1).records
        assert not isinstance(found, bytes)
        assert any(record.offset == offset for record in read_all_records(found.read()))
    assert {time: (log.offset_for_timestamp(TimestampMs(time)) or (-1, -1))[:2] for time in listed} == listed
    assert listed[latest + 1][1] not in {offset for offset, *_ in uncommitted}, "no marker was listed"
    if ending == "stop":
        rebuilt = rebuild_indexes(disk, tmp_path / "kafkas", tmp_path / "again")
        assert rebuilt == {name: (tmp_path / "kafkas" / f"{TOPIC}-0" / name).read_bytes() for name in rebuilt}
    # The quorum's own log is one like any other.
    metadata = manager.metadata_log(TimestampMs(0))
    assert metadata.lost_bytes == 0
    assert len(all_records(metadata)) > 0
    assert metadata.folder.name == f"{METADATA_TOPIC}-0"


def test_we_open_what_kafka_compacted_before_it_was_killed(tmp_path: Path) -> None:
    """Kafka compacts above its last checkpointed recovery point: a compacted segment may end before the next begins."""
    disk = PosixDisk()
    with kafka(tmp_path / "kafka", {"log.cleaner.backoff.ms": "200"}) as target:
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 5, "acks": "all"})
        for segment in range(4):
            for index in range(200):
                producer.produce(TOPIC, key=f"{segment}-{index}", value=bytes(4500))
            for _ in range(40):
                producer.produce(TOPIC, key="again and again", value=bytes(4500))
            assert producer.flush(30) == 0
        cleaned = target.members[0].data / "cleaner-offset-checkpoint"
        await_true(lambda: cleaned.exists() and f"{TOPIC} 0" in cleaned.read_text(), "a compaction")
        served = consume(target, "read_uncommitted")
        target.kill(1)
        data = tmp_path / "data"
        shutil.copytree(target.members[0].data, data)
    assert len(served) < 960
    manager = LogDirectory(disk, data)
    manager.load(TimestampMs(0))
    topic_id = read_topic_id(disk, data / f"{TOPIC}-0")
    assert topic_id is not None
    log = manager.get_or_create(
        TOPIC, 0, topic_id, LogConfig(cleanup_policy="compact", segment_bytes=1 << 20), TimestampMs(0)
    )
    assert log.lost_bytes == 0
    found = all_records(log)
    assert set(found) <= set(served), "Kafka may have compacted more before it was killed"
    assert {record[2]: record for record in found} == {record[2]: record for record in served}


def rebuild_indexes(disk: PosixDisk, data: Path, folder: Path) -> dict[str, bytes]:
    """Our indexes of Kafka's log files, which must equal Kafka's."""
    shutil.copytree(data / f"{TOPIC}-0", folder)
    names = [path.name for path in folder.iterdir() if path.suffix in (".index", ".timeindex", ".txnindex")]
    assert len(names) >= 5
    for name in names:
        (folder / name).unlink()
    Log(
        disk, folder, LogConfig(segment_bytes=1 << 20, index_interval_bytes=1000), TimestampMs(0), LogIdentity(TOPIC, 0)
    ).close()
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("ending", ["closed", "crashed"])
def test_kafka_serves_what_we_wrote(tmp_path: Path, ending: str) -> None:
    disk = PosixDisk()
    with kafka(tmp_path / "kafka") as target:
        create(target)
        target.stop(1)
        folder = target.members[0].data / f"{TOPIC}-0"
        topic_id = read_topic_id(disk, folder)
        shutil.rmtree(folder)
        config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=1000)
        log = Log(disk, folder, config, TimestampMs(0), LogIdentity(TOPIC, 0, topic_id))
        written = fill(log)
        if ending == "closed":
            log.close()
        else:
            # Kafka's own note of a clean end must not speak for our log.
            (target.members[0].data / ".kafka_cleanshutdown").unlink()
        assert complaints(dump(sorted(folder.glob("*.log")), "--deep-iteration")) == []
        target.restart(1)
        assert consume(target, "read_uncommitted") == written
        produce_everything(target)
        assert len(consume(target, "read_uncommitted")) == len(written) + 900
        said = "\n".join(path.read_text() for path in target.logs(1))
    assert not errors_in(said)
    assert "Corrupt" not in said


def fill(log: Log) -> list[Read]:
    chance = random.Random(5)
    now = TimestampMs(1_700_000_000_000)
    written: list[Read] = []
    for step in range(120):
        records: list[Record] = random_records(chance)[:40]
        info = log.append_as_leader(build(records, codec=chance.choice(list(Codec))), LeaderEpoch(0), now)
        written += [(info.first_offset + i, r.timestamp, copied(r.key), copied(r.value)) for i, r in enumerate(records)]
        if step == 60:
            log.flush()
    return written


def test_kafka_serves_what_we_compacted(tmp_path: Path) -> None:
    """Kafka serves the same records from the segments that our cleaner wrote."""
    disk = PosixDisk()
    with kafka(tmp_path / "kafka") as target:
        create(target)
        target.stop(1)
        folder = target.members[0].data / f"{TOPIC}-0"
        topic_id = read_topic_id(disk, folder)
        shutil.rmtree(folder)
        config = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, index_interval_bytes=1000)
        log = Log(disk, folder, config, TimestampMs(0), LogIdentity(TOPIC, 0, topic_id))
        chance = random.Random(6)
        for number in range(900):
            keys = [b"key %d" % chance.randrange(300) for _ in range(20)]
            records = [
                Record(
                    Offset(index), TimestampMs(number), key, chance.randbytes(400) if chance.random() < 0.9 else None
                )
                for index, key in enumerate(keys)
            ]
            log.append_as_leader(build(records, codec=chance.choice(list(Codec))), LeaderEpoch(0), TimestampMs(0))
        whole, segments = all_records(log), log.segment_count
        log.flush()
        for _ in range(2):  # the second puts the small segments together that the first has left
            compact(log, rolls=False)
        kept = all_records(log)
        assert len(kept) < len(whole) / 2
        assert log.segment_count < segments
        last = {key: offset for offset, _, key, _ in whole}
        assert set(last.values()) <= {offset for offset, *_ in kept}
        assert set(kept) <= set(whole)
        log.close()
        assert complaints(dump(sorted(folder.glob("*.index")))) == []
        target.restart(1)
        assert consume(target, "read_uncommitted") == kept
        said = "\n".join(path.read_text() for path in target.logs(1))
    assert not errors_in(said)
    assert "Corrupt" not in said


def errors_in(log: str) -> list[str]:
    """Errors that Kafka logged, without those of its own registration before it knows that it is the active controller."""
    return [line for line in log.splitlines() if " ERROR " in line and "apiKey=CONTROLLER_REGISTRATION" not in line]
