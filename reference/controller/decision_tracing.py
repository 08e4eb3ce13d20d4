"""Traces of the active controller's decisions, under the specification's action names.

The trace is derived from a decision's records when they are appended, before any other step. A step of a broker is one row with
all partitions that it changes; a step of a partition is a row of that partition alone. Each row has the end of the decision in
the metadata log, and the controller epoch, so that decisions which are never committed can be left out. The form is that of
`spec/cluster_trace.py`. `Begin` is a new partition. `End` is a deleted partition, or a change that the specification does not
have. Records about neither brokers nor partitions are not traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reference.controller.brokers import FENCE, IN_CONTROLLED_SHUTDOWN, UNFENCE
from reference.controller.configs import Configuration
from reference.controller.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    NO_LEADER_CHANGE,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
)
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId, Offset, TopicName
from reference.protocol.schema import Message
from reference.replication.partition import Trace

MIN_ISR = "min.insync.replicas"

Row = dict[str, Any]


class DecisionTracing:
    """Traces one controller's decisions; `image` is the metadata before the traced decision."""

    def __init__(self, node: NodeId, image: MetadataImage, configuration: Configuration, trace: Trace) -> None:
        self._node = node
        self._image = image
        self._configuration = configuration
        self._trace = trace

    def trace_step(self, records: Sequence[Message], epoch: LeaderEpoch, end: Offset) -> None:
        """Trace the decision with these records; `end` is the metadata log's end after them."""
        row: Row = {"node": self._node, "controllerEpoch": epoch, "offset": end}
        for action, more in self._steps(records):
            self._trace(action, row | more)

    def _steps(self, records: Sequence[Message]) -> Iterator[tuple[str, Row]]:
        for name, first in self._created(records):
            yield "Begin", {"partitions": {name: first}}
        changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
        moved = next((step for record in records if (step := self._step_of_broker(record)) is not None), None)
        beyond = [each for each in changes if _is_beyond(each) or (moved is None and _loses_its_leader(each))]
        ended = dict.fromkeys([*self._deleted(records), *map(self._name_of, beyond)])
        if ended:
            yield "End", {"partitions": ended}
        for least, partitions in self._reconfigured(records):
            yield "ChangeMinIsr", {"args": {"minIsr": least}, "partitions": partitions}
        changed = {self._name_of(record): record for record in changes if record not in beyond}
        if moved is not None:
            action, broker = moved
            arguments: dict[str, int] = {"broker": broker}
            if action == "RegisterBroker":
                arguments["brokerEpoch"] = _broker_epoch(records)
            yield action, {"args": arguments, "partitions": {name: self._after(each) for name, each in changed.items()}}
            return
        for name, record in changed.items():
            action, arguments = self._step_of_partition(record)
            yield action, {"args": arguments, "partitions": {name: self._after(record)}}

    # ---- brokers

    def _step_of_broker(self, record: Message) -> tuple[str, NodeId] | None:
        """The step of a broker's record; None for a record without a step in the specification."""
        match record:
            case RegisterBrokerRecord():
                known = self._image.brokers.get(record.broker_id)
                is_new_incarnation = known is None or known.epoch != record.broker_epoch
                return ("RegisterBroker", record.broker_id) if is_new_incarnation else None
            case BrokerRegistrationChangeRecord(fenced=change) if change == UNFENCE:
                return "UnfenceBroker", record.broker_id
            case BrokerRegistrationChangeRecord(in_controlled_shutdown=change) if change == IN_CONTROLLED_SHUTDOWN:
                return "ControlledShutdown", record.broker_id
            case BrokerRegistrationChangeRecord(fenced=change) if change == FENCE:
                return self._fenced(record.broker_id)
            case UnregisterBrokerRecord():
                return self._fenced(record.broker_id)
            case _:
                return None

    def _fenced(self, broker: NodeId) -> tuple[str, NodeId] | None:
        """The fencing of a broker; None in controlled shutdown, when the specification has fenced it already."""
        return ("FenceBroker", broker) if self._image.is_active(broker) else None

    # ---- partitions

    def _created(self, records: Sequence[Message]) -> Iterator[tuple[str, Row]]:
        """The first states of new partitions, with which their traces begin."""
        topics = {record.topic_id: record.name for record in records if isinstance(record, TopicRecord)}
        fenced = [broker.id for broker in self._image.brokers.values() if not self._image.is_active(broker.id)]
        for record in records:
            if isinstance(record, PartitionRecord):
                known = self._image.topics_by_id.get(record.topic_id)
                topic = topics.get(record.topic_id) or (known.name if known is not None else "")
                begins = _first(record) | {"minIsr": self._min_isr(topic, records), "fenced": fenced}
                yield f"{topic}-{record.partition_id}", begins

    def _partition_of(self, record: PartitionChangeRecord) -> PartitionImage:
        return self._image.topics_by_id[record.topic_id].partitions[record.partition_id]

    def _name_of(self, record: PartitionChangeRecord) -> str:
        return f"{self._image.topics_by_id[record.topic_id].name}-{record.partition_id}"

    def _after(self, record: PartitionChangeRecord) -> Row:
        return _row(self._partition_of(record).after(record))

    def _step_of_partition(self, record: PartitionChangeRecord) -> tuple[str, Row]:
        """The step of a change to a single partition."""
        partition = self._partition_of(record)
        after = partition.after(record)
        replicas = {"replicas": sorted({*after.replicas} - {*after.removing_replicas})}
        if _is_called_off(partition, after):
            return "CallOffReassignment", replicas
        if _reassigns(record) and {*after.isr} <= {*partition.isr}:
            return "Reassign", replicas
        # An ISR expansion may complete a reassignment, and with it begin a leader epoch.
        if record.leader == NO_LEADER_CHANGE or _reassigns(record):
            return "AlterPartition", {"leader": partition.leader}
        action = "ElectLeader" if record.leader in partition.isr else "ElectUncleanLeader"
        return action, {"broker": record.leader}

    def _reconfigured(self, records: Sequence[Message]) -> Iterator[tuple[int, Row]]:
        """Each topic's new min.insync.replicas, and its partitions, whose ELR it clears (KIP-966)."""
        for record in records:
            if not isinstance(record, ClearElrRecord):
                continue
            for name in [record.topic_name] if record.topic_name else [*self._image.topics]:
                topic = self._image.topics.get(name)
                if topic is not None:
                    least = self._min_isr(name, records)
                    rows = {f"{name}-{index}": _cleared(each) for index, each in topic.partitions.items()}
                    yield least, {each: row | {"minIsr": least} for each, row in rows.items()}

    def _min_isr(self, topic: TopicName, records: Sequence[Message]) -> int:
        """A topic's min.insync.replicas after these records: its own, or the one of all topics."""
        made = {
            (record.resource_type, record.resource_name): record.value
            for record in records
            if isinstance(record, ConfigRecord) and record.name == MIN_ISR
        }
        own = made.get((TOPIC_RESOURCE, topic), self._image.topic_config(topic).get(MIN_ISR))
        for_all = made.get((BROKER_RESOURCE, ""))
        return int(str(own or for_all or self._configuration.broker(MIN_ISR)))

    def _deleted(self, records: Sequence[Message]) -> Iterator[str]:
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                topic = self._image.topics_by_id[record.topic_id]
                yield from (f"{topic.name}-{index}" for index in topic.partitions)


def _cleared(partition: PartitionImage) -> Row:
    """The row of a partition after its ELR was cleared, as by `image._clear_elr`."""
    if not partition.eligible_leader_replicas and not partition.last_known_elr:
        return _row(partition)
    return _row(partition.after(PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])))


def _is_called_off(partition: PartitionImage, after: PartitionImage) -> bool:
    """Whether a reassignment has ended with the replicas from before it."""
    before = {*partition.replicas} - {*partition.adding_replicas}
    return partition.is_reassigning and not after.is_reassigning and {*after.replicas} == before


def _reassigns(record: PartitionChangeRecord) -> bool:
    return any(each is not None for each in (record.replicas, record.adding_replicas, record.removing_replicas))


def _is_beyond(record: PartitionChangeRecord) -> bool:
    """Whether a change is outside the specification: it concerns neither ISR nor leader, ELR or replicas."""
    is_known = (
        record.isr is not None or record.leader != NO_LEADER_CHANGE or record.eligible_leader_replicas is not None
    )
    return not is_known and not _reassigns(record)


def _loses_its_leader(record: PartitionChangeRecord) -> bool:
    """Whether a change only removes the leader, as after a failure of its log directory: the specification has no such step."""
    return record.leader == NO_LEADER and not _reassigns(record)


def _broker_epoch(records: Sequence[Message]) -> BrokerEpoch:
    return next(record.broker_epoch for record in records if isinstance(record, RegisterBrokerRecord))


def _first(record: PartitionRecord) -> Row:
    return {
        "leader": record.leader,
        "leaderEpoch": record.leader_epoch,
        "partitionEpoch": record.partition_epoch,
        "replicas": list(record.replicas),
        "isr": list(record.isr),
        "elr": list(record.eligible_leader_replicas or ()),
        "adding": list(record.adding_replicas),
        "removing": list(record.removing_replicas),
    }


def _row(partition: PartitionImage) -> Row:
    return {
        "leader": partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.eligible_leader_replicas),
        "adding": list(partition.adding_replicas),
        "removing": list(partition.removing_replicas),
    }
