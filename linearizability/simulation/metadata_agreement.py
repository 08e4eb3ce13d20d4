# pyright: reportPrivateUsage=false
"""Each committed record of the metadata, read once and in order: what the controller may decide, and what all nodes make of it.

A node applies several records in one step, so that its image does not show each of them. Here a further image takes them one by
one, from whichever node has them. The images of nodes are compared with it at the same offset: those that were read from a
snapshot, and one in COMPARED of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from linearizability.simulation.world import Violation
from reference.controller.image import NO_LEADER, MetadataImage, PartitionImage
from reference.controller.quorum import Quorum
from reference.node.node import Node
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.fence_broker_record import FenceBrokerRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from reference.protocol.primitives import NodeId, Offset
from reference.protocol.schema import Message

COMPARED = 16
READ_AGAIN = 7
"""So many of the last offsets are read again now and then: also from within a batch."""
Place = tuple[Any, int]
"""Topic id and partition."""


class MetadataAgreement:
    """Follows a cluster's metadata log."""

    def __init__(self) -> None:
        self._image = MetadataImage()
        self._replayed: dict[int, int] = {}
        """The highest offset that each node has replayed."""
        self._following: set[tuple[int, int]] = set()
        """Brokers and broker epochs in which some step ended with all replicas following the metadata."""
        self._steps = 0
        self._changed: dict[Place, str] = {}
        """Partitions that the records of one step concern, and their names."""

    def look_at_replicas(self, number: int, node: Node) -> None:
        """Note, after each step of a node, whether its replicas follow its image: it may be unfenced from then on."""
        if not node.replicas._due and node.has_caught_up:
            self._following.add((number, node.broker_epoch))

    def follow(self, number: int, node: Node, is_first: bool) -> None:
        """A node's image has moved on; `is_first` for the first time in its incarnation. Errors: Violation."""
        quorum, image = node.quorum, node.image
        if quorum.is_leader:
            # What it decides of itself may be asked, decided and replayed in one step.
            self._replayed[number] = image.end_offset
        end = min(image.end_offset, quorum.high_watermark)
        if quorum.records_log.log_start_offset <= self._image.end_offset < end:
            self._take_up_to(end, quorum)
            self._require_serving()
        self._replayed[number] = max(image.end_offset, self._replayed.get(number, 0))
        self._steps += 1
        if image.end_offset == self._image.end_offset and (is_first or self._steps % COMPARED == 0):
            self._compare(number, image)
            start = max(quorum.records_log.log_start_offset, quorum.high_watermark - READ_AGAIN)
            for _ in self._read(quorum, Offset(start)):
                pass

    def _take_up_to(self, end: Offset, quorum: Quorum) -> None:
        """Errors: Violation."""
        for offset, record in self._read(quorum, self._image.end_offset):
            if offset < end:
                self._take(offset, record)
        self._image.end_offset = end

    def _read(self, quorum: Quorum, start: Offset) -> Iterator[tuple[Offset, Message]]:
        """What is committed from an offset on. Errors: Violation, where a record is read twice, or not asked for."""
        least, end = start, quorum.high_watermark
        for offset, record in quorum.committed(start):
            if not least <= offset < end:
                self._broken("metadata-out-of-order", f"offset {offset} is read where {least} to {end} are asked for")
            yield offset, record
            least = Offset(offset + 1)

    def _take(self, offset: Offset, record: Message) -> None:
        image = self._image
        match record:
            case PartitionChangeRecord() | PartitionRecord():
                place = (record.topic_id, record.partition_id)
                before = image.topics_by_id[record.topic_id].partitions.get(record.partition_id)
                image.apply(record, offset)
                topic = image.topics_by_id[record.topic_id]
                self._changed[place] = f"{topic.name}-{record.partition_id}"
                self._judge(self._changed[place], before, topic.partitions[record.partition_id])
            case RegisterBrokerRecord():
                known = image.brokers.get(record.broker_id)
                image.apply(record, offset)
                if not (known.epoch if known is not None else 0) <= record.broker_epoch <= offset:
                    self._broken(
                        "broker-epoch-back", f"broker {record.broker_id} has epoch {record.broker_epoch} at {offset}"
                    )
            case BrokerRegistrationChangeRecord() | FenceBrokerRecord() | UnfenceBrokerRecord():
                broker = record.broker_id if isinstance(record, BrokerRegistrationChangeRecord) else record.id
                was_fenced = image.brokers[broker].fenced
                image.apply(record, offset)
                self._judge_broker(broker, was_fenced)
            case ProducerIdsRecord() if record.next_producer_id <= image.next_producer_id:
                self._broken("producer-ids-back", f"from {image.next_producer_id} to {record.next_producer_id}")
            case _:
                image.apply(record, offset)

    def _judge(self, name: str, before: PartitionImage | None, now: PartitionImage) -> None:
        """Errors: Violation."""
        replicas = {*now.replicas}
        if not {*now.isr, *now.eligible_leader_replicas} <= replicas:
            self._broken("member-without-replica", f"{name}: {now}")
        if now.leader != NO_LEADER and now.leader not in now.isr:
            self._broken("leader-not-in-isr", f"{name}: {now}")
        if {*now.isr} & {*now.eligible_leader_replicas}:
            self._broken("isr-and-elr-overlap", f"{name}: {now}")
        if before is None:
            return
        if before.leader != now.leader and before.leader_epoch == now.leader_epoch:
            self._broken("leader-without-epoch", f"{name}: {before} became {now}")
        if {*before.replicas} - replicas and before.leader_epoch == now.leader_epoch:
            self._broken("dropped-without-epoch", f"{name}: {before} became {now}")
        if before.adding_replicas and not now.adding_replicas:
            added = replicas & {*before.adding_replicas}
            if not added <= {*now.isr} or (added and added != {*before.adding_replicas}):
                self._broken("reassigned-too-early", f"{name}: {before} became {now}")
        if before.removing_replicas and not now.removing_replicas and not now.adding_replicas and not now.isr:
            self._broken("reassigned-too-early", f"{name}: {before} became {now}")

    def _judge_broker(self, broker: NodeId, was_fenced: bool) -> None:
        """A broker is unfenced only once it has replayed its own registration, and so all that went before, and its replicas have
        followed that. Errors: Violation."""
        now = self._image.brokers[broker]
        replayed = self._replayed.get(broker, 0)
        if was_fenced and not now.fenced and replayed <= now.registered_at:
            text = f"broker {broker} is registered at {now.registered_at}, has replayed what is below {replayed}, and is unfenced"
            self._broken("unfenced-too-early", text)
        if was_fenced and not now.fenced and (broker, now.epoch) not in self._following:
            self._broken(
                "unfenced-too-early", f"broker {broker} is unfenced before its replicas have followed the metadata"
            )
        if now.fenced and not was_fenced:
            for topic in self._image.topics.values():
                for index, partition in topic.partitions.items():
                    if broker in partition.isr:
                        self._changed[topic.id, index] = f"{topic.name}-{index}"

    def _require_serving(self) -> None:
        """After a decision no fenced broker is in sync, and so none leads. Errors: Violation."""
        changed, self._changed = self._changed, {}
        for (topic_id, index), name in changed.items():
            topic = self._image.topics_by_id.get(topic_id)
            partition = topic.partitions[index] if topic is not None else None
            for member in partition.isr if partition is not None else ():
                broker = self._image.brokers.get(member)
                if broker is None or broker.fenced:
                    self._broken(
                        "fenced-member-in-isr", f"{name}: broker {member} is fenced, and in sync in {partition}"
                    )

    def _compare(self, number: int, image: MetadataImage) -> None:
        ours, theirs = _shown(self._image), _shown(image)
        for part, value in ours.items():
            if theirs[part] != value:
                text = f"up to {image.end_offset} the {part} are {value}, and node {number} has {theirs[part]}"
                self._broken("images-differ", text)

    def _broken(self, rule: str, text: str) -> NoReturn:
        raise Violation(rule, text)


def _shown(image: MetadataImage) -> dict[str, object]:
    return {
        "topics": {topic.id: (topic.name, topic.partitions) for topic in image.topics.values()},
        "brokers": {
            each.id: (each.epoch, each.fenced, each.in_controlled_shutdown, {*each.directories})
            for each in image.brokers.values()
        },
        "configurations": {resource: values for resource, values in image.configs.items() if values},
        "features": {name: level for name, level in image.features.items() if level},
        "producer ids": image.next_producer_id,
    }
