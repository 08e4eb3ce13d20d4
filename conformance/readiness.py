"""Whether a partition's leader serves it. Metadata may be ahead of the leader for a moment, or behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.observations import READY_WITHIN_S
from conformance.wire import Misbehaved, NoAnswer, Unreachable
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from conformance.broker import Broker

EARLIEST = -2
"""Special timestamp of ListOffsets."""
SHORTEST_S = 0.5
"""The shortest wait for a broker that does not report topics."""


def error_of_leader(broker: Broker, topic: Topic, partition: int) -> int:
    """The error code of a partition's leader, from ListOffsets or else Fetch; UNKNOWN_TOPIC_OR_PARTITION where its metadata
    lacks it.

    With ZooKeeper a broker first learns that it leads (LeaderAndIsr), then the leaders of all partitions (UpdateMetadata). In
    between the leader answers ListOffsets, and refuses records with UNKNOWN_TOPIC_OR_PARTITION.
    """
    subject = broker.subject
    if subject.by_zookeeper and subject.nodes > 1:
        named = MetadataRequest.MetadataRequestTopic(name=topic.name)
        known = broker.metadata([named], to=broker.leader(topic, partition)).topics
        if partition not in [one.partition_index for each in known for one in each.partitions]:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if ListOffsetsRequest.KEY in subject.api_versions:
        return broker.offset_of(topic, EARLIEST, partition=partition).error_code
    if FetchRequest.KEY in subject.api_versions:
        return broker.fetch(topic, 0, partition=partition).error_code
    return ErrorCode.NONE


def await_everywhere(broker: Broker, topic: Topic) -> None:
    """Wait until every reachable broker reports the topic's leaders: until a broker learns of a new topic, it reports that
    the topic does not exist. The wait for a broker shrinks with each topic that it fails to report, to save the time of later
    requirements."""
    named = MetadataRequest.MetadataRequestTopic(name=topic.name)

    def reported(address: tuple[str, int]) -> bool:
        try:
            found = broker.metadata([named], to=address).topics
        except Unreachable:
            return True
        except Misbehaved:
            return False
        led = [one.leader_id >= 0 for each in found if each.name == topic.name for one in each.partitions]
        return sum(led) >= topic.partitions

    unreachable = {(one.host, one.port) for one in broker.subject.profile.nodes if one.unreachable}
    places = {(one.host, one.port) for one in broker.metadata([]).brokers} - broker.hurt - unreachable
    ignorant = broker.subject.ignorant
    for place in sorted(places):
        within_s = ignorant.get(place, READY_WITHIN_S)
        what = f"the broker at {place} reports {topic.name}"
        try:
            broker.eventually(lambda place=place: reported(place), what, within_s=within_s)
            ignorant.pop(place, None)
        except NoAnswer:  # the requirements about metadata judge this broker
            ignorant[place] = max(SHORTEST_S, within_s / 4)


def serves(broker: Broker, topic: Topic) -> bool:
    """Whether the topic has one partition, and its leader answers ListOffsets."""
    try:
        led = [one.leader_id >= 0 for one in broker.describe_topic(topic.name).partitions]
        return led == [True] and broker.offset_of(topic, EARLIEST).error_code == ErrorCode.NONE
    except Misbehaved:
        return False
