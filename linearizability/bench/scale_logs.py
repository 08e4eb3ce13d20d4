"""Rows of `bench scale` for large logs: how a node starts with one, and what retention and compaction do to other traffic.

- *log*: a partition of so many megabytes, in batches of the size that producers send by default; the node starts after kill -9,
  after a clean stop whose note (`.kafka_cleanshutdown`) was removed, the same without recovery points, so that all is read, and
  after a clean stop.
- *upkeep*: so many records of 100 B, four of a key. Requests come at a steady rate on another topic, first alone, then while the
  log is compacted, then while retention deletes as many records. A request's latency counts from when it was due.
"""

from __future__ import annotations

import random
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from linearizability.bench.compaction import BATCH_BYTES, CHECKPOINT, configure
from linearizability.bench.load import (
    PRODUCE,
    PRODUCE_VERSION,
    LoadConnection,
    await_leader,
    check,
    make_batch,
    make_topic,
    produce_body,
)
from linearizability.bench.scale_cluster import Meter, connect, send_all
from linearizability.targets import TargetError
from linearizability.targets.cluster import ClusterTarget
from reference.protocol.frames import encode_request
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "segment-checksums", "cleaner-offset-checkpoint")
BATCH_RECORDS, RECORD_BYTES = 16, 1000
"""About 16 KiB, batch.size's default."""
IN_FLIGHT = 10
COPIES, SMALL_RECORD_BYTES = 4, 100
SEGMENTS, LEAST_SEGMENT_BYTES, MOST_SEGMENT_BYTES = 5, 1 << 20, 64 << 20
UPKEEP_CONFIG = {"log.cleaner.backoff.ms": "1000", "log.retention.check.interval.ms": "1000"}
RATE_PER_S = 200
ALONE_S = 20.0
UPKEEP_WITHIN_S = 1800.0
LOOK_EVERY_S = 0.2
LARGE, BESIDE, OLD = "large", "beside", "old"


def topic_folder(target: ClusterTarget, topic: str) -> Path:
    return target.member(target.nodes[0].id).data / f"{topic}-0"


def produce_all(connection: LoadConnection, topic: str, batches: Iterator[bytes | bytearray]) -> None:
    requests = (
        encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", produce_body(topic, batch, acks=1)) for batch in batches
    )
    send_all(connection, requests, IN_FLIGHT, lambda frame: check(PRODUCE, PRODUCE_VERSION, frame))


# ---- a large log


def measure_log(target: ClusterTarget, megabytes: int, meter: Meter) -> None:
    """Measure a node whose one partition has `megabytes`. Errors: TargetError."""
    node = target.nodes[0].id
    connection = connect(target.nodes[0])
    make_topic(connection, LARGE)
    await_leader(connection, LARGE, 1)
    batch = make_batch(BATCH_RECORDS, RECORD_BYTES)
    count = megabytes * 1_000_000 // len(batch)
    meter.stage("filled", lambda: produce_all(connection, LARGE, (batch for _ in range(count))))
    connection.socket.close()
    is_back = lambda: take_record(target)  # noqa: E731
    data = target.member(node).data
    meter.row["log_mb"] = round(sum(path.stat().st_size for path in topic_folder(target, LARGE).glob("*.log")) / 1e6)
    meter.kill(node)
    meter.start("start_after_kill", node, is_back)
    meter.stop(node)
    (data / CLEAN_SHUTDOWN).unlink()
    meter.start("start_without_note", node, is_back)
    meter.stop(node)
    for name in (CLEAN_SHUTDOWN, *CHECKPOINTS):
        (data / name).unlink(missing_ok=True)
    meter.start("start_reading_all", node, is_back)
    meter.stop(node)
    meter.start("start_after_stop", node, is_back)


def take_record(target: ClusterTarget) -> None:
    """Wait until the large log accepts a record."""
    connection = connect(target.nodes[0])
    connection.socket.settimeout(UPKEEP_WITHIN_S)
    until = time.monotonic() + UPKEEP_WITHIN_S
    while time.monotonic() < until:
        try:
            await_leader(connection, LARGE, 1)
        except TimeoutError:
            continue
        connection.socket.close()
        return
    raise TargetError(f"{target.spec} takes no record for {LARGE}-0")


# ---- retention and compaction beside traffic


class Traffic:
    """Requests of one record at a steady rate, and their latencies in microseconds, each from when it was due."""

    def __init__(self, connection: LoadConnection, topic: str) -> None:
        body = produce_body(topic, make_batch(1, SMALL_RECORD_BYTES), acks=1)
        self._request = encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", body)
        self._connection = connection
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection.socket, selectors.EVENT_READ)

    def run(self, is_over: Callable[[], bool]) -> list[float]:
        """Send until `is_over`, which is called now and then."""
        began = looked = time.monotonic()
        due: deque[float] = deque()
        found: list[float] = []
        sent, ended = 0, False
        while not ended or due:
            now = time.monotonic()
            if not ended and now - looked >= LOOK_EVERY_S:
                looked, ended = now, is_over()
            next_due = began + sent / RATE_PER_S
            if not ended and now >= next_due:
                self._connection.socket.sendall(self._request)
                due.append(next_due)
                sent += 1
            elif self._selector.select(max(0.0, next_due - now) if not ended else 1.0):
                check(PRODUCE, PRODUCE_VERSION, self._connection.receive())
                found.append((time.monotonic() - due.popleft()) * 1e6)
        return found


def measure_upkeep(target: ClusterTarget, records: int, meter: Meter) -> None:
    """Measure a node that compacts and deletes `records` besides serving traffic. Errors: TargetError."""
    connection, beside = connect(target.nodes[0]), connect(target.nodes[0])
    for topic in (LARGE, OLD, BESIDE):
        make_topic(connection, topic)
        await_leader(connection, topic, 1)
    segment_bytes = max(LEAST_SEGMENT_BYTES, min(MOST_SEGMENT_BYTES, records * SMALL_RECORD_BYTES // SEGMENTS))
    for topic in (LARGE, OLD):
        configure(connection, topic, segment_bytes=str(segment_bytes), min_cleanable_dirty_ratio="0")
    meter.stage("filled", lambda: produce_all(connection, LARGE, keyed(records)))
    filler = make_batch(BATCH_BYTES // SMALL_RECORD_BYTES, SMALL_RECORD_BYTES)
    fillers = records * SMALL_RECORD_BYTES // BATCH_BYTES
    meter.stage("filled_again", lambda: produce_all(connection, OLD, (filler for _ in range(fillers))))
    traffic = Traffic(beside, BESIDE)
    time.sleep(2.0)  # what was written is flushed
    until = time.monotonic() + ALONE_S
    latencies(meter, "alone", lambda: traffic.run(lambda: time.monotonic() > until))
    large, closed = topic_folder(target, LARGE), last_base(topic_folder(target, LARGE))
    meter.row["compacted_mb"] = round(megabytes_of(large))
    configure(connection, LARGE, cleanup_policy="compact")
    wanted = f"{LARGE} 0 {closed}"
    latencies(meter, "compaction", lambda: traffic.run(lambda: has_line(large.parent / CHECKPOINT, wanted)))
    meter.row["left_mb"] = round(megabytes_of(large))
    old, kept = topic_folder(target, OLD), last_base(topic_folder(target, OLD))
    meter.row["deleted_mb"] = round(megabytes_of(old))
    configure(connection, OLD, retention_ms="1", file_delete_delay_ms="1000")
    latencies(meter, "retention", lambda: traffic.run(lambda: first_base(old) >= kept))
    for socket in (connection.socket, beside.socket):
        socket.close()


def latencies(meter: Meter, name: str, run: Callable[[], list[float]]) -> None:
    """Record median, 99th percentile and longest latency of requests during `run`, and its time and CPU."""
    found: list[float] = []
    meter.stage(name, lambda: found.extend(run()))
    found.sort()
    row: dict[str, Any] = meter.row
    row[f"{name}_requests"] = len(found)
    for quantile, at in (("p50", len(found) // 2), ("p99", len(found) * 99 // 100), ("max", len(found) - 1)):
        row[f"{name}_{quantile}_us"] = round(found[at])
    if name != "alone":
        row[f"{name}_p99_ratio"] = round(row[f"{name}_p99_us"] / row["alone_p99_us"], 2)
    row[f"{name}_mb"] = round(meter.holdings()[0])


def keyed(records: int) -> Iterator[bytes]:
    """Yield batches of records, four of each key, no key twice in a batch."""
    chance = random.Random(11)
    now = TimestampMs(int(time.time() * 1000))
    a_batch = BATCH_BYTES // SMALL_RECORD_BYTES
    keys = max(1, records // COPIES)
    order = list(range(keys))
    chance.shuffle(order)
    values = [chance.randbytes(SMALL_RECORD_BYTES - 16) for _ in range(a_batch)]
    once = [
        bytes(
            build(
                [
                    Record(Offset(index), now, b"%016d" % key, value)
                    for index, (key, value) in enumerate(zip(order[at : at + a_batch], values, strict=False))
                ]
            )
        )
        for at in range(0, keys, a_batch)
    ]
    for _ in range(COPIES):
        yield from once


def bases(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def first_base(folder: Path) -> int:
    return bases(folder)[0]


def last_base(folder: Path) -> int:
    """Return the active segment's base offset. Errors: TargetError if it is the only segment."""
    found = bases(folder)
    if len(found) < 2:
        raise TargetError(f"{folder.name} has no closed segment")
    return found[-1]


def megabytes_of(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*.log")) / 1e6


def has_line(path: Path, line: str) -> bool:
    return path.exists() and line in path.read_text().splitlines()
