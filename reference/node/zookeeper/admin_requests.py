"""Requests that tools up to 2.8 write as znodes: /admin/reassign_partitions and /admin/preferred_replica_election.

The controller reads both when it begins, and after each change. It decides them like the same requests of the protocol. Their
progress is visible in the controller's image alone, so a later controller continues. An entry of the first is removed when the
partition is reassigned or cannot be, or when another request has changed its target. The second znode is deleted after one
attempt at each partition.
Source: KafkaController.processZkPartitionReassignment, maybeRemoveFromZkReassignment and onReplicaElection of Apache Kafka 3.9.2.
Unlike Kafka, a list without replicas is refused, and a znode of another shape than Kafka's does not stop the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from reference.controller.configs import Configuration
from reference.controller.elections import PREFERRED_ELECTION, elect_leaders
from reference.controller.reassignments import Origin, alter_partition_reassignments
from reference.node.requests import Key
from reference.node.zookeeper.own_steps import Step
from reference.node.zookeeper.writer import Writer
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.primitives import NodeId, TimestampMs, TopicName
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import ANY_VERSION, Code, Delete, GetData, Result, SetData, Write, ZnodeVersion
from reference.zookeeper.session import OnWatch, Session

Partitions = dict[Key, list[NodeId]]
"""Partitions, with the wanted replicas of a reassignment."""


@dataclass(slots=True)
class _Asked:
    """A znode at its last read."""

    partitions: Partitions = field(default_factory=dict[Key, list[NodeId]])
    version: ZnodeVersion = ANY_VERSION
    is_there: bool = False


class AdminRequests:
    """The two znodes, and this controller's work on them."""

    def __init__(self, writer: Writer, session: Session, configuration: Configuration, log: Logger) -> None:
        self.changed: Callable[[TimestampMs], None] = lambda now: None
        """Called when there may be something to decide."""
        self._writer = writer
        self._session = session
        self._image = configuration.image
        self._configuration = configuration
        self._log = log
        self._reassignments = _Asked()
        self._elections = _Asked()
        self._begun: Partitions = {}
        """Reassignments that were decided, including refused ones."""
        self._reads = 0
        """The number of reads in flight; until they are answered the state here may be old."""

    # ---- what is asked for

    def read(self, now: TimestampMs) -> None:
        """Begin a term without any former state."""
        self._reassignments, self._elections, self._begun = _Asked(), _Asked(), {}
        self._read_reassignments(now)
        self._read_elections(now)

    def _read_reassignments(self, now: TimestampMs) -> None:
        def take(asked: _Asked) -> None:
            self._reassignments = asked

        self._ask(znodes.REASSIGNMENTS, take, self._read_reassignments, now)

    def _read_elections(self, now: TimestampMs) -> None:
        def take(asked: _Asked) -> None:
            self._elections = asked

        self._ask(znodes.PREFERRED_ELECTION, take, self._read_elections, now)

    def _ask(self, path: str, take: Callable[[_Asked], None], watch: OnWatch, now: TimestampMs) -> None:
        def read(result: Result, then: TimestampMs) -> None:
            self._reads -= 1
            if self._writer.is_ready and result.code in (Code.OK, Code.NO_NODE):
                take(self._decoded(path, result))
                self.changed(then)

        if self._writer.is_ready:
            self._reads += 1
            self._session.ask(GetData(path, watch=True), read, now, watch)

    def _decoded(self, path: str, result: Result) -> _Asked:
        """The content of a znode; a damaged one has no entries, as in Kafka."""
        if result.code == Code.NO_NODE:
            return _Asked()
        partitions: Partitions = {}
        try:
            partitions = {
                (topic, index): wanted for topic, index, wanted in znodes.decode_partitions(path, result.data)
            }
        except znodes.DamagedZnode as error:
            self._log("error", f"{error}: it is ignored")
        return _Asked(partitions, result.stat.version, is_there=True)

    # ---- deciding

    @property
    def awaits_reassignments(self) -> bool:
        """Whether a change of any partition may end a reassignment."""
        return bool(self._reassignments.partitions)

    def next_step(self, deleting: Collection[TopicName], now: TimestampMs) -> Step | None:
        """The next step, without topics that are being deleted."""
        if self._reads:
            return None
        return self._begin_reassignments(deleting) or self._end_reassignments(now) or self._elect(deleting, now)

    def _begin_reassignments(self, deleting: Collection[TopicName]) -> Step | None:
        new = {key: each for key, each in self._reassignments.partitions.items() if self._begun.get(key) != each}
        if not new:
            return None
        self._begun |= new
        request = AlterPartitionReassignmentsRequest()
        for name, indexes in _by_topic(new, deleting).items():
            topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name)
            request.topics.append(topic)
            for index in indexes:
                wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=index, replicas=new[name, index]
                )
                topic.partitions.append(wanted)
        decision = alter_partition_reassignments(self._image, self._configuration, request, Origin.ZNODE)
        for answers in decision.response.responses:
            for answer in answers.partitions:
                if answer.error_code:
                    place = f"{answers.name}-{answer.partition_index}"
                    reason = answer.error_message or name_of(answer.error_code)
                    self._log("warning", f"{znodes.REASSIGNMENTS}: {place} is not reassigned: {reason}")
        return (decision.records, "Reassign") if decision.records else None

    def _end_reassignments(self, now: TimestampMs) -> Step | None:
        """Remove the entries of reassignments that are no longer ongoing from the znode."""
        over = [key for key, wanted in self._reassignments.partitions.items() if not self._is_under_way(key, wanted)]
        return self._remove(over, now)

    def _is_under_way(self, key: Key, wanted: list[NodeId]) -> bool:
        partition = self._image.partition(*key)
        if partition is None or not partition.is_reassigning:
            return False
        return [each for each in partition.replicas if each not in partition.removing_replicas] == wanted

    def withdraw(self, keys: Iterable[Key], now: TimestampMs) -> None:
        """Remove the entries of partitions to which a request of the protocol gives another target, before that is written."""
        self._remove([key for key in keys if key in self._reassignments.partitions], now)

    def _remove(self, keys: Collection[Key], now: TimestampMs) -> Step | None:
        """Remove entries from the znode. If the znode has changed since it was read, the term ends."""
        if not keys:
            return None
        asked = self._reassignments
        for key in keys:
            del asked.partitions[key]
            self._begun.pop(key, None)
        write: Write = Delete(znodes.REASSIGNMENTS, asked.version)
        if asked.partitions:
            data = znodes.encode_reassignments(asked.partitions)
            write = SetData(znodes.REASSIGNMENTS, data, asked.version)
        asked.version = ZnodeVersion(asked.version + 1)
        self._writer.write([], [write], now)
        return [], "EndReassignment"

    def _elect(self, deleting: Collection[TopicName], now: TimestampMs) -> Step | None:
        """Elect once for each partition, and delete the znode in any case."""
        asked, wanted = self._elections, self._elections.partitions
        if not asked.is_there:
            return None
        asked.partitions = {}
        request = ElectLeadersRequest(election_type=PREFERRED_ELECTION, topic_partitions=[])
        assert request.topic_partitions is not None
        for name, indexes in _by_topic(wanted, deleting).items():
            request.topic_partitions.append(ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes))
        decision = elect_leaders(self._image, self._configuration, request)
        for results in decision.response.replica_election_results:
            for result in results.partition_result:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    place = f"{results.topic}-{result.partition_id}"
                    self._log("warning", f"{znodes.PREFERRED_ELECTION}: {place}: {result.error_message}")
        if decision.records:
            return decision.records, "ElectLeader"
        asked.is_there = False
        self._writer.write([], [Delete(znodes.PREFERRED_ELECTION, asked.version)], now)
        return [], "EndPreferredElection"


def begun(response: AlterPartitionReassignmentsResponse) -> list[Key]:
    """The partitions whose target a request of the protocol has changed."""
    return [
        (topic.name, each.partition_index)
        for topic in response.responses
        for each in topic.partitions
        if not each.error_code
    ]


def _by_topic(partitions: Iterable[Key], deleting: Collection[TopicName]) -> dict[TopicName, list[int]]:
    found: dict[TopicName, list[int]] = {}
    for name, index in partitions:
        if name not in deleting:
            found.setdefault(name, []).append(index)
    return found
