"""The offsets that each node reports of the partitions that it leads, requested over the wire once a second.

A node is asked by Metadata what it believes to lead, and in which epoch; then by ListOffsets for the log start, the last
stable offset and the high watermark, in this order: what bounds another is asked for after it, and the epoch is named, so an
answer proves that the node led in that epoch. A deposed leader that does not know it may report old offsets, but in its own
epoch they never go back. Followers are not asked: consumers get no answer from them, and what they know of the high watermark
may go back.

| brokers | what they report |
| --- | --- |
| 2.1 and later | log start, last stable offset, high watermark, leader epoch (ListOffsets 4, Metadata 7; KIP-320) |
| 0.10.1 to 2.0 | log start |

Where no epoch is reported, a node may have lost and regained the lead between two requests. A lower high watermark could then be
a step back or a new leader epoch; so neither it nor the last stable offset is asked for. A restarted node may lead in its former
epoch with an older high watermark. Only a new connection shows the restart; so its answers there for an epoch that it reported
before are left out.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from linearizability.history.contract import Contract
from linearizability.history.operations import MicroOperation, state
from linearizability.history.recorder import Recorder, RecordingError
from linearizability.targets.target import Node
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest

ASK_EVERY_S = 1.0
ASK_TIMEOUT_S = 2.0
FIRST_WITH_EPOCHS = 4
"""From this version of ListOffsets on the asker names the leader's epoch."""
FIRST_WITH_ONE_OFFSET = 1
"""Before this version of ListOffsets the answer is a list of segments."""
FIRST_NOT_CREATING = 4
"""Before this version of Metadata a question about a topic may make it."""
CONSUMER = -1
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
UNKNOWN_EPOCH = -1


class Inspector:
    """Asks one node about one topic, on a connection that it keeps while it can. Not for several threads."""

    def __init__(self, node: Node, topic: str) -> None:
        self.node = node
        self.topic = topic
        self._wire: Wire | None = None
        self._reported: dict[int, int] = {}
        """Partition -> the highest epoch that the node has reported."""
        self._spent: dict[int, int] = {}
        """Partition -> the highest epoch that it had reported before the present connection."""

    def ask(self, recorder: Recorder) -> None:
        """Record the node's offsets now; a node that does not answer, or leads nothing, is left out. Errors: RecordingError."""
        try:
            wire = self._connected()
            leads = self._leads(wire)
            version = wire.version_of(ListOffsetsRequest)
        except (WireError, ValueError):
            self.close()
            return
        if not leads or version < FIRST_WITH_ONE_OFFSET:
            return
        operation = recorder.invoke("state")
        try:
            reported = self._numbers(wire, version, leads)
        except (WireError, ValueError) as error:
            self.close()
            recorder.fail(operation, error=str(error))
            return
        if reported:
            recorder.ok(operation, reported)
        else:
            recorder.fail(operation, error="it answered for no partition")

    def close(self) -> None:
        """Close the connection; the node may have restarted before the next one."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._spent = dict(self._reported)

    def _connected(self) -> Wire:
        if self._wire is None:
            self._wire = Wire.connect(self.node.host, self.node.port, timeout_s=ASK_TIMEOUT_S)
        return self._wire

    def _leads(self, wire: Wire) -> dict[int, int]:
        """Partition -> epoch, of the partitions that the node believes to lead."""
        asked = MetadataRequest.MetadataRequestTopic(name=self.topic)
        version = wire.version_of(MetadataRequest)
        request = MetadataRequest(topics=[asked], allow_auto_topic_creation=version < FIRST_NOT_CREATING)
        topics = wire.call(request, version).topics
        return {
            entry.partition_index: entry.leader_epoch
            for entry in (topics[0].partitions if topics else [])
            if entry.leader_id == self.node.id
            and (entry.leader_epoch == UNKNOWN_EPOCH or entry.leader_epoch > self._spent.get(entry.partition_index, -1))
        }

    def _numbers(self, wire: Wire, version: int, leads: dict[int, int]) -> list[MicroOperation]:
        """One view a partition that answered every question."""
        epochs = leads if version >= FIRST_WITH_EPOCHS else dict.fromkeys(leads, UNKNOWN_EPOCH)
        questions = {"log_start": (EARLIEST, READ_UNCOMMITTED)}
        if version >= FIRST_WITH_EPOCHS:
            questions["last_stable_offset"] = (LATEST, READ_COMMITTED)
            questions["high_watermark"] = (LATEST, READ_UNCOMMITTED)
        answers = {name: self._offsets(wire, version, epochs, *question) for name, question in questions.items()}
        reported: list[MicroOperation] = []
        for partition, epoch in epochs.items():
            numbers = {name: offsets[partition] for name, offsets in answers.items() if partition in offsets}
            if len(numbers) < len(questions):
                continue
            self._reported[partition] = max(epoch, self._reported.get(partition, -1))
            known = {} if epoch == UNKNOWN_EPOCH else {"epoch": epoch}
            reported.append(state(f"{self.topic}-{partition}", self.node.id, **numbers, **known))
        return reported

    def _offsets(
        self, wire: Wire, version: int, epochs: dict[int, int], timestamp: int, isolation: int
    ) -> dict[int, int]:
        """Partition -> offset, of those that the node answered for."""
        partition = ListOffsetsRequest.ListOffsetsPartition
        asked = [
            partition(partition_index=number, current_leader_epoch=epoch, timestamp=timestamp)
            for number, epoch in epochs.items()
        ]
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=asked)
        request = ListOffsetsRequest(replica_id=CONSUMER, isolation_level=isolation, topics=[topic])
        answer: Any = wire.call(request, version)
        return {
            entry.partition_index: entry.offset
            for entry in answer.topics[0].partitions
            if entry.error_code == ErrorCode.NONE and entry.offset >= 0
        }


@contextmanager
def inspecting(
    nodes: Sequence[Node], topic: str, folder: Path, *, process: int, contract: Contract, run: str
) -> Iterator[None]:
    """A context that asks every node once a second, each in a thread of its own, and records the answers in one file.

    Errors: RecordingError, at the end.
    """
    stopping = threading.Event()
    failures: list[RecordingError] = []
    with Recorder.open(folder, process=process, contract=contract, run=run) as recorder:

        def watch(node: Node) -> None:
            inspector = Inspector(node, topic)
            try:
                while not stopping.wait(ASK_EVERY_S):
                    inspector.ask(recorder)
            except RecordingError as error:
                failures.append(error)
            finally:
                inspector.close()

        threads = [
            threading.Thread(target=watch, args=(node,), name=f"inspects {node.id}", daemon=True) for node in nodes
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
    if failures:
        raise failures[0]
