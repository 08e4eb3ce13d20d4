"""A consumer that records every poll: alone on all partitions, or as a member of a group that commits what it has read."""

import struct
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from linearizability.history.operations import Key, Value, commit, committed, poll
from linearizability.history.recorder import Recorder
from linearizability.workload.client_run import ClientRun
from linearizability.workload.librdkafka import connection_settings
from linearizability.workload.outcomes import proves_nothing_committed
from linearizability.workload.profile import Consuming

POLL_S = 0.25
RECORDS_A_POLL = 500
REQUEST_TIMEOUT_S = 5.0
CLOSE_WITHIN_S = 20.0
"""librdkafka's close waits for every commit that it still tries, for ever if need be (confluentinc/librdkafka#3740)."""
LOST_PLACE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
"""Errors after which a partition's position is lost: it would stay silent until a new seek."""
GROUP_METADATA = struct.Struct("=7si")
"""librdkafka's encoding of a member's group metadata: this word, then the generation; the names follow."""
GROUP_METADATA_WORD = b"CGMDv2:"


def run(client_run: ClientRun) -> None:
    """Consume until asked to stop."""
    while not client_run.stopping.is_set():
        with client_run.recorder() as recorder:
            Incarnation(client_run, recorder).run()


class Incarnation:
    """A consumer until its end or its first fatal error."""

    def __init__(self, client_run: ClientRun, recorder: Recorder) -> None:
        task, does = client_run.task, client_run.task.does
        assert isinstance(does, Consuming)
        self.client_run = client_run
        self.does = does
        self.recorder = recorder
        self.topic = task.topic
        self.positions: dict[int, int] = {}
        """Partition -> the offset after the last record that was recorded."""
        self.uncommitted = False
        self.committing: int | None = None
        """The commit that is under way."""
        self.rebalanced: set[int] = set()
        """Partitions that were assigned or revoked during the present poll."""
        self.fatal = False
        self.consumer = Consumer(
            consumer_settings(task.bootstrap, task.client_id, does.group, does.isolation)
            | {"on_commit": self._on_commit}
            | group_settings(does)
        )

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are assigned and revoked incrementally (KIP-429)."""
        return self.does.protocol == "consumer" or self.does.assignor == "cooperative-sticky"

    def run(self) -> None:
        """Poll, and in a group commit; close at the end."""
        try:
            if self.does.how == "assign":
                self._take_all()
            else:
                self.consumer.subscribe([self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            commit_at = time.monotonic() + self.does.commit_every_s
            while not self.client_run.stopping.is_set() and not self.fatal:
                self._poll()
                if self.does.how == "subscribe" and time.monotonic() >= commit_at:
                    self._commit()
                    commit_at = time.monotonic() + self.does.commit_every_s
                self.client_run.report()
                self.client_run.stopping.wait(self.does.rest_s)
        finally:
            self._close()

    def _close(self) -> None:
        """Leave the group; a close that does not end is left behind, with all that it might still do unrecorded."""
        closing = threading.Thread(target=self.consumer.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_WITHIN_S)
        if closing.is_alive():
            self.client_run.hung = True
            self.recorder.mark("note", text=f"the consumer's close did not end within {CLOSE_WITHIN_S:.0f} s")

    # ---- reading

    def _poll(self) -> None:
        self.rebalanced.clear()
        operation = self.recorder.invoke("poll", [poll()])
        try:
            messages = self.consumer.consume(RECORDS_A_POLL, timeout=POLL_S)
        except (KafkaException, RuntimeError) as error:
            self.recorder.info(operation, error=str(error))
            return
        records: dict[Key, list[tuple[Value, ...]]] = {}
        lost: set[int] = set()
        for message in messages:
            error = message.error()
            if error is None:
                records.setdefault(f"{self.topic}-{message.partition()}", []).append(read_record(message))
            elif error.code() in LOST_PLACE and message.partition() is not None:
                lost.add(int(message.partition()))  # type: ignore[arg-type]
            elif error.fatal():
                self.fatal = True
        fields = {"rebalanced": self._keys(self.rebalanced)} if self.rebalanced else {}
        self.recorder.ok(operation, [poll(records)], **fields)
        for message in messages:
            if message.error() is None and message.partition() in self.positions:
                self.positions[int(message.partition())] = int(message.offset()) + 1  # type: ignore[arg-type]
                self.uncommitted = True
                self.client_run.counts["read"] += 1
        for partition in sorted(lost):
            self._seek_start(partition)

    def _seek_start(self, partition: int) -> None:
        """Seek to the log's start after the position was lost (a truncated log, a fresh group)."""
        start = self._log_start(partition)
        self._momentary("seek", keys=self._keys([partition]), to="start")
        self.positions[partition] = start
        try:
            self.consumer.seek(TopicPartition(self.topic, partition, start))
        except KafkaException as error:
            self.recorder.mark("note", text=f"seek of {self.topic}-{partition}: {error}")

    def _log_start(self, partition: int) -> int:
        try:
            low, _ = self.consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), timeout=REQUEST_TIMEOUT_S
            )
        except KafkaException:
            return 0
        return max(low, 0)

    # ---- partitions

    def _take_all(self) -> None:
        self.positions = dict.fromkeys(range(self.client_run.task.partitions), 0)
        self._momentary("assign", keys=self._keys(self.positions))
        self.consumer.assign([TopicPartition(self.topic, partition, 0) for partition in self.positions])

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        partitions = [item.partition for item in given]
        self.rebalanced.update(partitions)
        generation, member = self._place()
        keys = self._keys({*self.positions, *partitions} if self.is_cooperative else partitions)
        self._momentary("subscribe", keys=keys, group=self.does.group, generation=generation, member=member)
        offsets = self._fetch_committed(partitions)
        given_at = {partition: offsets.get(partition) or 0 for partition in partitions}
        self.positions = {**self.positions, **given_at} if self.is_cooperative else given_at
        take = consumer.incremental_assign if self.is_cooperative else consumer.assign
        take([TopicPartition(self.topic, p, offset) for p, offset in given_at.items()])

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self.rebalanced.update(item.partition for item in taken)
        self._commit()
        if self.is_cooperative:
            for item in taken:
                self.positions.pop(item.partition, None)
            self._momentary("subscribe", keys=self._keys(self.positions), group=self.does.group)
            consumer.incremental_unassign(taken)
            return
        self.positions = {}
        self._momentary("subscribe", keys=[], group=self.does.group)
        consumer.unassign()

    # ---- the group's offsets

    def _fetch_committed(self, partitions: list[int]) -> dict[int, int | None]:
        """The group's committed offsets, None where it has none; empty without a response."""
        if not partitions:
            return {}
        operation = self.recorder.invoke("committed", [committed(self.does.group)])
        try:
            found = self.consumer.committed(
                [TopicPartition(self.topic, partition) for partition in partitions], timeout=REQUEST_TIMEOUT_S
            )
        except KafkaException as error:
            self.recorder.info(operation, error=str(error))
            return {}
        if any(item.error is not None for item in found):
            self.recorder.info(operation, error=str(next(item.error for item in found if item.error is not None)))
            return {}
        offsets = {item.partition: item.offset if item.offset >= 0 else None for item in found}
        named: dict[Key, int | None] = {f"{self.topic}-{partition}": offset for partition, offset in offsets.items()}
        self.recorder.ok(operation, [committed(self.does.group, named)])
        return offsets

    def _commit(self) -> None:
        """Ask for a commit, one at a time; `_on_commit` is called with the outcome. A blocking one may block for ever."""
        if not self.positions or not self.uncommitted or self.committing is not None:
            return
        positions = dict(self.positions)
        named: dict[Key, int] = {f"{self.topic}-{partition}": offset for partition, offset in positions.items()}
        operation = self.recorder.invoke("commit", [commit(self.does.group, named, *self._place())])
        self.committing, self.uncommitted = operation, False
        try:
            self.consumer.commit(
                offsets=[TopicPartition(self.topic, p, offset) for p, offset in positions.items()], asynchronous=True
            )
        except KafkaException as error:
            self._on_commit(error.args[0], [])

    def _on_commit(self, error: KafkaError | None, answered: list[TopicPartition]) -> None:
        operation, self.committing = self.committing, None
        if operation is None:
            return
        refused = error or next((item.error for item in answered if item.error is not None), None)
        if refused is None:
            self.client_run.counts["commits"] += 1
            self.recorder.ok(operation)
        else:
            self.uncommitted = True
            self._complete_failed_commit(operation, refused)

    def _complete_failed_commit(self, operation: int, error: KafkaError) -> None:
        complete = self.recorder.fail if proves_nothing_committed(error) else self.recorder.info
        complete(operation, error=error.name() or str(error.code()))

    def _place(self) -> tuple[int, str]:
        """The member's generation and its id; -1 and nothing where it has none, or librdkafka writes it otherwise.

        Members of one assignment by a coordinator have epochs of their own (KIP-848), which prove no common generation.
        """
        if self.does.protocol == "consumer":
            return -1, ""
        try:
            metadata, member = self.consumer.consumer_group_metadata(), self.consumer.memberid() or ""
        except (KafkaException, RuntimeError):
            return -1, ""
        return generation_of(metadata), member

    # ---- words

    def _keys(self, partitions: Any) -> list[str]:
        return [f"{self.topic}-{partition}" for partition in sorted(partitions)]

    def _momentary(self, f: str, **fields: Any) -> None:
        self.recorder.ok(self.recorder.invoke(f, **fields))


def generation_of(metadata: object) -> int:
    """The generation in a member's group metadata; -1 where there is none."""
    if not isinstance(metadata, bytes) or len(metadata) < GROUP_METADATA.size:
        return -1
    word, generation = GROUP_METADATA.unpack_from(metadata)
    return generation if word == GROUP_METADATA_WORD else -1


def read_record(message: Message) -> tuple[Value, ...]:
    """Offset, value, and the leader epoch where the broker returned it.

    A value that is no number is kept as text, and is then reported as a phantom.
    """
    raw = message.value()
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else ""
    value = int(text) if text.isdigit() else text
    epoch = message.leader_epoch()
    offset = int(message.offset() or 0)
    return (offset, value) if epoch is None or epoch < 0 else (offset, value, epoch)


def group_settings(does: Consuming) -> dict[str, Any]:
    """How a member joins; sessions of the consumer protocol (KIP-848) are the brokers' to configure."""
    if does.protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": does.assignor,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
    }


def consumer_settings(bootstrap: str, client_id: str, group: str, isolation: str) -> dict[str, Any]:
    """Settings for a consumer that never resets its position by itself: it reports a lost one."""
    return connection_settings(bootstrap, client_id) | {
        "group.id": group or client_id,
        "isolation.level": isolation,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "max.poll.interval.ms": 60_000,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
    }
