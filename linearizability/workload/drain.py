"""The final read: whole partitions, from the start to the end that the log had when everything was healed.

Without it an acknowledged record that no client read is only unseen; with it, it is lost. So the end is the log's own, the high
watermark, also where only committed records are read: what lies behind an open transaction is hidden, and not lost, and a
read that such a transaction stops has not come to the end.
"""

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from linearizability.history.contract import Contract
from linearizability.history.operations import Key, Value, drain, list_offsets, poll
from linearizability.history.recorder import Recorder
from linearizability.workload.consumer import consumer_settings, read_record

ASK_AGAIN_S = 0.5
RECORDS_A_POLL = 2_000


@dataclass(frozen=True, slots=True)
class Unread:
    """A partition that was not read to its end."""

    partition: int
    reason: str
    position: int | None = None
    """The offset at which the read stood still until its time was over, where it did."""

    def __str__(self) -> str:
        return self.reason


def drain_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    recorder: Recorder,
    contract: Contract,
    *,
    within_s: float,
) -> list[Unread]:
    """Read every partition to its end and record it, as the run's contract has it. Returns those that could not be read."""
    until = time.monotonic() + within_s
    consumer = Consumer(
        consumer_settings(bootstrap, "tidegauge-drain", "", contract.isolation) | {"enable.partition.eof": True}
    )
    measurer = Consumer(consumer_settings(bootstrap, "tidegauge-drain-end", "", "read_uncommitted"))
    try:
        tried = (
            _drain_partition(consumer, measurer, recorder, topic, partition, until, contract)
            for partition in range(partitions)
        )
        return [unread for unread in tried if unread is not None]
    finally:
        consumer.close()
        measurer.close()


def _drain_partition(
    consumer: Consumer,
    measurer: Consumer,
    recorder: Recorder,
    topic: str,
    partition: int,
    until: float,
    contract: Contract,
) -> Unread | None:
    key = f"{topic}-{partition}"
    bounds = _bounds(measurer, recorder, key, TopicPartition(topic, partition), until)
    if bounds is None:
        return Unread(partition, f"{key}: no leader said where the log ends")
    start, end = bounds
    consumer.assign([TopicPartition(topic, partition, start)])
    recorder.ok(recorder.invoke("assign", keys=[key]))
    draining = recorder.invoke("drain", [drain(key, start, end, start)])
    position = start
    while position < end:
        if time.monotonic() > until:
            recorder.info(draining, error="out of time")
            return Unread(partition, f"{key}: read up to {position} of {end} when the time was over", position)
        operation = recorder.invoke("poll", [poll()])
        messages = consumer.consume(RECORDS_A_POLL, timeout=1.0)
        found = [message for message in messages if message.error() is None]
        records: dict[Key, list[tuple[Value, ...]]] = (
            {key: [read_record(message) for message in found]} if found else {}
        )
        recorder.ok(operation, [poll(records, _ends(consumer, key, TopicPartition(topic, partition)))])
        for message in messages:
            error = message.error()
            if error is None:
                position = max(position, int(message.offset() or 0) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, int(message.offset() or 0))
            elif not error.retriable():
                recorder.info(draining, error=str(error))
                return Unread(partition, f"{key}: {error}")
    if contract.cleanup == "delete":  # what expired meanwhile is not lost
        _bounds(measurer, recorder, key, TopicPartition(topic, partition), until)
    recorder.ok(draining, [drain(key, start, end, position)])
    return None


def _ends(consumer: Consumer, key: str, partition: TopicPartition) -> dict[Key, int] | None:
    """The high watermark that the last fetch answered, as far as there was one. Fetches began after the final read had."""
    _, end = consumer.get_watermark_offsets(partition, cached=True)
    return {key: end} if end >= 0 else None


def _bounds(
    measurer: Consumer, recorder: Recorder, key: str, partition: TopicPartition, until: float
) -> tuple[int, int] | None:
    """Log start and high watermark. A consumer of committed records would get the last stable offset instead."""
    while time.monotonic() < until:
        operation = recorder.invoke("list_offsets", [list_offsets(key)])
        try:
            start, end = measurer.get_watermark_offsets(partition, timeout=5)
        except KafkaException as error:
            recorder.info(operation, error=str(error))
            time.sleep(ASK_AGAIN_S)
            continue
        recorder.ok(operation, [list_offsets(key, start, end)])
        return start, end
    return None
