"""CGH: classic and KIP-848 members in one group, and conversions of groups to the other protocol. Source: KIP-848, migration."""

import struct

from conformance.answers import AnswerParts
from conformance.broker import Broker
from conformance.classic_groups import Group, Member, subscription
from conformance.committed_offsets import commit_one, expect_committed, expect_offset
from conformance.consumers import DESCRIBE, HEARTBEAT, Consumer, described_one, joined, settle, unused_group
from conformance.requirement import requirement
from conformance.requirements.consumer_heartbeats import SINCE
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.codec import CodecError, decode_from, encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Member types of ConsumerGroupDescribe."""
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
MIXED_WITHIN_S = 30.0
KEEPS_CLASSIC_OUT_SINCE = "4.2"
"""The first release in which the policy `disabled` keeps classic members out of consumer groups."""


def assignment(topic: Topic, *partitions: int) -> bytes:
    """An assignment as the leader of a classic consumer group sends it."""
    found = ConsumerProtocolAssignment.TopicPartition(topic=topic.name, partitions=list(partitions))
    return struct.pack(">h", 0) + encode(ConsumerProtocolAssignment(assigned_partitions=[found]), 0)


def partitions_in(data: bytes, topic: Topic) -> set[int]:
    """The partitions of a topic in an assignment of the classic protocol; empty for no bytes. Errors: Failed."""
    if not data:
        return set()
    try:
        version = struct.unpack_from(">h", data)[0]
        reported, _ = decode_from(ConsumerProtocolAssignment, version, memoryview(data), 2)
    except (CodecError, IndexError, struct.error, ValueError) as error:
        raise Failed(f"a member is given {len(data)} bytes that are no assignment: {error}") from error
    return {number for one in reported.assigned_partitions if one.topic == topic.name for number in one.partitions}


class OldConsumer:
    """A classic member of a group of either protocol, which joins again when asked to, as Kafka's consumers do."""

    def __init__(self, group: Group, topic: Topic) -> None:
        self.topic = topic
        self.member: Member = group.member(protocols={"range": subscription(topic.name, version=1)})
        self.owned: set[int] = set()

    def lead(self) -> None:
        """Join as the only member, and assign all partitions to it."""
        self.member.join()
        everything = range(self.topic.partitions)
        self.member.group.synchronise([self.member], {self.member.id: assignment(self.topic, *everything)})
        self.owned = set(everything)

    def follow(self) -> None:
        """Send a heartbeat. If it reports a rebalance, join again with the partitions owned so far, and synchronise."""
        code = self.member.heartbeat()
        if code not in (REBALANCING, ErrorCode.NONE):
            self.member.expect(code, "Heartbeat")
        if code == REBALANCING:
            owned = {self.topic.name: sorted(self.owned)}
            self.member.protocols["range"] = subscription(self.topic.name, version=1, owned=owned)
            self.member.join()
            answer = self.member.sync()
            if answer.error_code != REBALANCING:
                self.member.expect(answer.error_code, "SyncGroup")
                self.owned = partitions_in(bytes(answer.assignment), self.topic)


def share(broker: Broker, old: OldConsumer, new: Consumer) -> None:
    """Continue both members until they own all partitions together; fails if both ever hold the same one."""

    def shared() -> bool:
        old.follow()
        new.beat()
        held = {number for _, number in new.held}
        if old.owned & held:
            broker.fail(f"both members hold partitions {sorted(old.owned & held)}")
        quiet = old.member.heartbeat() == ErrorCode.NONE and new.assigned == new.reported
        return quiet and old.owned | held == set(range(old.topic.partitions)) and bool(old.owned) and bool(held)

    broker.eventually(shared, "the classic and the new member share all partitions", within_s=MIXED_WITHIN_S)
    broker.saw(
        f"the classic member owns {sorted(old.owned)}, the new one {sorted(number for _, number in new.assigned)}"
    )


@requirement(
    "CGH-17",
    notices="data: a group that is upgraded to the new protocol, or set back, loses its offsets",
    source="KIP-848, migration; GroupMetadataManager.classicGroupJoin, getOrMaybeCreatePersistedConsumerGroup",
    sentence="An empty group of one kind becomes one of the other when a member of that joins, and keeps its offsets; a classic "
    "member whose protocols the new kind does not know is refused in a group with members.",
    accepted="classic to new and back, with the same offset each time; INCONSISTENT_GROUP_PROTOCOL(23) for the type connect",
    since=SINCE,
    apis=DESCRIBE,
    deadline_s=60,
)
def empty_groups(broker: Broker) -> None:
    topic = broker.topic(2)
    group = Group(broker)
    expect_committed(broker, group.name, {(topic, 0): 5})
    for _ in range(2):
        (old,) = group.stable(1)
        expect_offset(broker, group.name, topic, 5, "the offset of the classic group")
        broker.expect_error(old.leave(), ErrorCode.NONE, what="LeaveGroup")
        (new,) = joined(broker, group.name, 1, [topic])
        expect_offset(broker, group.name, topic, 5, "the offset of the new group")
        stranger = group.member(protocol_type="connect")
        answer = stranger.ask_to_join()
        broker.expect_error(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what="the type connect")
        new.leave()


@requirement(
    "CGH-34",
    notices="client: a group cannot be upgraded to the new protocol while it reads",
    source="KIP-848, online migration; group.consumer.migration.policy",
    sentence="A new member joins a classic group of consumers without stopping it: the classic member is asked to join again, "
    "gives up its part, and both share the partitions; each commits in its own way.",
    accepted="never one partition with both; in the end all partitions, some with each; ConsumerGroupDescribe reports who is "
    "which; commits with generation and with epoch",
    since=SINCE,
    apis=DESCRIBE | {"ConsumerGroupDescribe": 1},
    configs={"group.consumer.migration.policy": "bidirectional"},
    deadline_s=90,
)
def upgraded_alive(broker: Broker) -> None:
    topic = broker.topic(4)
    group = Group(broker)
    old = OldConsumer(group, topic)
    old.lead()
    new = Consumer(broker, group.name, [topic])
    answer = new.join()
    broker.expect_equal(
        "what the new member holds at once", answer.assignment.topic_partitions if answer.assignment else [], []
    )
    share(broker, old, new)
    found = described_one(broker, group.name)
    kinds = AnswerParts({one.member_id: one.member_type for one in found.members})
    broker.expect_equal("the members' types", kinds, {old.member.id: CLASSIC_MEMBER, new.id: CONSUMER_MEMBER})
    code = commit_one(broker, group.name, topic, 5, generation=old.member.generation, member_id=old.member.id)
    broker.expect_error(code, ErrorCode.NONE, what="the classic member's OffsetCommit")
    code = commit_one(broker, group.name, topic, 6, version=9, generation=new.epoch, member_id=new.id)
    broker.expect_error(code, ErrorCode.NONE, what="the new member's OffsetCommit")


@requirement(
    "CGH-35",
    notices="client: a group cannot be set back to the classic protocol while it reads",
    source="KIP-848, online downgrade; GroupMetadataManager.convertToClassicGroup",
    sentence="A classic member joins a group of new members, and when the last new one leaves the group is classic: the classic "
    "member goes on alone.",
    accepted="they share the partitions; after the leave ConsumerGroupDescribe says GROUP_ID_NOT_FOUND(69), and the classic "
    "member joins again, leads, and assigns all",
    since=SINCE,
    apis=DESCRIBE,
    configs={"group.consumer.migration.policy": "bidirectional"},
    deadline_s=90,
)
def downgraded_alive(broker: Broker) -> None:
    topic = broker.topic(4)
    group = Group(broker)
    (new,) = joined(broker, group.name, 1, [topic])
    old = OldConsumer(group, topic)
    old.member.join()
    answer = old.member.sync()
    if answer.error_code == ErrorCode.NONE:
        old.owned = partitions_in(bytes(answer.assignment), topic)
    share(broker, old, new)
    new.leave()
    found = described_one(broker, group.name)
    broker.expect_error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND, what="ConsumerGroupDescribe afterwards")
    group.await_rebalance(old.member)
    old.lead()
    broker.expect_equal("who leads", old.member.leads, True)
    broker.expect_error(old.member.heartbeat(), ErrorCode.NONE, what="its Heartbeat")


@requirement(
    "CGH-36",
    notices="client: Java and librdkafka end with this code; the workers of Connect must not notice",
    source="KIP-848; GroupMetadataManager.validateOnlineUpgrade",
    sentence="A classic group of another protocol type with members is no place for a consumer: GROUP_ID_NOT_FOUND, and its "
    "members do not notice.",
    accepted="GROUP_ID_NOT_FOUND(69); NONE(0) for the members' heartbeats; once they left the group can be of consumers",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=60,
)
def groups_of_workers(broker: Broker) -> None:
    topic = broker.topic(2)
    group = Group(broker, protocol_type="connect")
    (worker,) = group.stable(1)
    consumer = Consumer(broker, group.name, [topic])
    broker.expect_error(consumer.ask().error_code, ErrorCode.GROUP_ID_NOT_FOUND, what="a consumer's heartbeat")
    broker.expect_error(worker.heartbeat(), ErrorCode.NONE, what="the worker's Heartbeat")
    broker.expect_error(worker.leave(), ErrorCode.NONE, what="LeaveGroup")
    consumer.join()
    settle(consumer, topics=[topic])


@requirement(
    "CGH-37",
    notices="operator: groups are mixed although the administrator forbade it",
    source="KIP-848; group.consumer.migration.policy",
    sentence="Where the migration policy is `disabled` the two kinds do not mix: a group with members takes no member of the "
    "other kind, and without members it still changes its kind.",
    accepted="GROUP_ID_NOT_FOUND(69) for a consumer's heartbeat in a classic group, and since 4.2 "
    "INCONSISTENT_GROUP_PROTOCOL(23) for a classic member's JoinGroup in a consumer group; the member that is there does not "
    "notice",
    since=SINCE,
    apis=HEARTBEAT,
    configs={"group.consumer.migration.policy": "disabled"},
    deadline_s=60,
)
def no_mixing(broker: Broker) -> None:
    topic = broker.topic(2)
    group = Group(broker)
    old = OldConsumer(group, topic)
    old.lead()
    new = Consumer(broker, group.name, [topic])
    broker.expect_error(new.ask().error_code, ErrorCode.GROUP_ID_NOT_FOUND, what="a consumer's heartbeat")
    broker.expect_error(old.member.heartbeat(), ErrorCode.NONE, what="the classic member's Heartbeat")
    broker.expect_error(old.member.leave(), ErrorCode.NONE, what="LeaveGroup")
    new.join()
    settle(new, topics=[topic])
    if broker.is_kafka(KEEPS_CLASSIC_OUT_SINCE):
        answer = OldConsumer(group, topic).member.ask_to_join()
        refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        broker.expect_error(answer.error_code, refusal, what="a classic member's JoinGroup")
        settle(new, topics=[topic])


@requirement(
    "CGH-38",
    notices="tool: Java's Admin.removeMembersFromConsumerGroup does nothing for members of the new protocol",
    source="KIP-848; GroupMetadataManager.classicGroupLeaveToConsumerGroup, validateClassicGroupHeartbeat",
    sentence="In a group of new members the classic Heartbeat and SyncGroup with a new member's id are UNKNOWN_MEMBER_ID; "
    "LeaveGroup removes that member, as an administrator does.",
    accepted="UNKNOWN_MEMBER_ID(25) twice, with no harm; NONE(0) for LeaveGroup, and the other one holds all partitions",
    since=SINCE,
    apis=HEARTBEAT | {"LeaveGroup": 3},
    deadline_s=60,
)
def classic_words(broker: Broker) -> None:
    topic = broker.topic(4)
    name = unused_group(broker)
    one, other = joined(broker, name, 2, [topic])
    group = Group(broker, name)
    pretender = group.member(id=other.id)
    broker.expect_error(group.heartbeat(other.id, other.epoch), ErrorCode.UNKNOWN_MEMBER_ID, what="Heartbeat")
    answer = pretender.sync(generation=other.epoch)
    broker.expect_error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, what="SyncGroup")
    settle(one, other, topics=[topic])
    broker.expect_error(pretender.leave(), ErrorCode.NONE, what="LeaveGroup")
    settle(one, topics=[topic])
