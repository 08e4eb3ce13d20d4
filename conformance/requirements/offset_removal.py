"""OFF: the end of committed offsets. They survive a change of coordinator, and are removed by deletion, expiration, or with their
topic."""

import time

from conformance.broker import Broker
from conformance.classic_groups import Group, Member, subscription
from conformance.cluster import QUICK, STATE_WITHIN_S, cluster
from conformance.committed_offsets import (
    NOTHING,
    await_offset,
    commit,
    commit_one,
    committed,
    delete_offsets,
    expect_committed,
    expect_offset,
)
from conformance.requirement import requirement
from conformance.requirements.group_survival import group_at
from conformance.transaction_client import CLASSIC, TransactionalClient
from linearizability.client.requests import Topic, delete_topics_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

WITH_INSTANCES = 5
"""The first version of JoinGroup with static members (KIP-345)."""
DEADLINE_S = 180.0
ENDS = ("kill", "restart")
BY_NAME = 9
"""The last version of OffsetFetch with topic names: a deleted topic has no id for later versions."""
SHORT_RETENTION = {"offsets.retention.check.interval.ms": "500", "offsets.retention.minutes": "1"}
"""How often the coordinator removes expired offsets, and their retention; the defaults are ten minutes and a week.

Other requirements cannot run with these: such a cleanup also removes an empty group, with the ids of members that are about to
join.
"""
RETENTION_S = 60
EARLY_S = 1
"""An offset may expire earlier by this time, because the coordinator's clock and the suite's are read at different moments."""
BEFORE_THE_OTHER_S = 30.0
"""The time within which an offset with its own short retention must be removed: less than the other offset's retention."""
OPEN_FOR_MS = 280_000
"""The timeout of a transaction that is open when offsets expire."""
GONE_WITHIN_S = 60.0
"""The time from the end of the retention within which offsets must be removed, on a busy machine."""
RETENTION_REPORTED = range(2, 5)
"""The versions of OffsetCommit with a retention of the client's choice."""


@requirement(
    "OFF-13",
    notices="data: a consumer reads records again, or passes over some, after a coordinator died",
    source="documentation, group coordinator; offsets.commit.required.acks",
    sentence="A commit that was acknowledged is there after the coordinator's end: the next coordinator reports it.",
    accepted="after kill -9 of the coordinator every group's last offset, metadata and leader epoch, also when the dead one is "
    "back",
    draft="at once after a fail-over Kafka can report an earlier offset, or none: what is above the new leader's high watermark "
    "is reported only when that has caught up",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S, requires=("COO-01",),
)  # fmt: skip
def coordinator_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        one, other, third = nodes.cast()
        topic = nodes.topic(third)
        group, coordinator = group_at(broker, nodes, one, other)
        names = [group.name, *(Group(broker).name for _ in range(10))]
        for number, name in enumerate(names):
            for offset in (number, 100 + number):
                expect_committed(broker, name, {(topic, 0): offset})
        nodes.kill(coordinator)
        group.await_coordinator(within_s=STATE_WITHIN_S)
        for when in ("while the coordinator is dead", "when it is back"):
            for number, name in enumerate(names):
                reported = f"the offset of group {number} {when}"
                await_offset(broker, name, topic, 100 + number, reported, within_s=STATE_WITHIN_S)
            nodes.mend()


@requirement(
    "OFF-14",
    notices="data: offsets go under a live group, which starts by auto.offset.reset",
    source="KIP-496; OffsetMetadataManager.deleteOffsets; ClassicGroup.validateOffsetDelete, isSubscribedToTopic",
    sentence="OffsetDelete removes the offsets of partitions: not of topics that a group of consumers with members subscribes "
    "to (GROUP_SUBSCRIBED_TO_TOPIC), of none of a group of another type with members (NON_EMPTY_GROUP), and of none of a group "
    "that does not exist (GROUP_ID_NOT_FOUND).",
    accepted="86 for the subscribed topic and NONE(0) for another one; 68 for the type connect; NONE(0) for both once they have "
    "no members; 3 for partitions that do not exist; 69 for an unused group, 24 for the empty id; what is removed is offset -1",
    tolerated="NONE(0) for a partition that does not exist, and GROUP_ID_NOT_FOUND(69) for the empty id: nothing is there to "
    "be removed",
    apis={"OffsetDelete": 0},
)
def deleted_offsets(broker: Broker) -> None:
    subscribed, other = broker.topic(), broker.topic()
    both = [(subscribed, 0), (other, 0)]
    consumers, workers = Group(broker), Group(broker, protocol_type="connect")
    (consumer,) = consumers.stable(1, protocols={"range": subscription(subscribed.name)})
    (worker,) = workers.stable(1)
    for member in (consumer, worker):
        codes = commit(
            broker, member.group.name, dict.fromkeys(both, 5), generation=member.generation, member_id=member.id
        )
        broker.expect_equal("the errors of OffsetCommit", set(codes.values()), {ErrorCode.NONE})
    wanted = {(subscribed, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): ErrorCode.NONE}
    broker.expect_equal(
        "consumers with a member", delete_offsets(broker, consumers.name, both), (ErrorCode.NONE, wanted)
    )
    expect_offset(broker, consumers.name, subscribed, 5, "the offset of the subscribed topic")
    expect_offset(broker, consumers.name, other, NOTHING, "the offset of the other topic")
    code, _ = delete_offsets(broker, workers.name, both)
    broker.expect_error(code, ErrorCode.NON_EMPTY_GROUP, what="another type with a member")
    expect_offset(broker, workers.name, other, 5, "its offset")
    for member in (consumer, worker):
        broker.expect_error(member.leave(), ErrorCode.NONE, what="LeaveGroup")
        found = delete_offsets(broker, member.group.name, both)
        broker.expect_equal("without members", found, (ErrorCode.NONE, dict.fromkeys(both, ErrorCode.NONE)))
        expect_offset(broker, member.group.name, subscribed, NOTHING, "the offset afterwards")
    expect_refused_deletes(broker, subscribed)


def expect_refused_deletes(broker: Broker, topic: Topic) -> None:
    """Expect the errors of OffsetDelete for groups and partitions that do not exist."""
    name = Group(broker).name
    code, _ = delete_offsets(broker, name, [(topic, 0)])
    broker.expect_error(code, ErrorCode.GROUP_ID_NOT_FOUND, what="an unused group")
    code, _ = delete_offsets(broker, "", [(topic, 0)])
    not_there = {ErrorCode.GROUP_ID_NOT_FOUND}
    broker.expect_error(code, ErrorCode.INVALID_GROUP_ID, tolerated=not_there, what="the empty group id")
    expect_committed(broker, name, {(topic, 0): 5})
    code, errors = delete_offsets(broker, name, [(topic, 9), (topic, 0)])
    broker.expect_equal(
        "an unknown partition and a known one", (code, {*errors}), (ErrorCode.NONE, {(topic, 9), (topic, 0)})
    )
    broker.expect_error(errors[topic, 0], ErrorCode.NONE, what="the known partition")
    harmless = {ErrorCode.NONE}
    broker.expect_error(
        errors[topic, 9], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, tolerated=harmless, what="the unknown partition"
    )


@requirement(
    "OFF-15",
    since="2.1",
    notices="operator: offsets of groups that are gone fill the coordinator; and those of live ones must stay",
    source="KIP-211; offsets.retention.minutes; ClassicGroup.offsetExpirationCondition",
    sentence="Offsets expire offsets.retention.minutes after their last commit where the group has no member, or after the group "
    "became empty; those of topics that a live group of consumers subscribes to never do.",
    accepted="with one minute: the offset without members and the unsubscribed one go after a minute and not before, that of "
    "the group which became empty later goes later, that of the subscribed topic stays; before 2.4 (KAFKA-8730) all offsets of "
    "a live group stayed",
    configs=SHORT_RETENTION,
    alone=True,
    deadline_s=300,
)
def expired_offsets(broker: Broker) -> None:
    subscribed, other = broker.topic(), broker.topic()
    nobodys, unstable = Group(broker).name, Group(broker).name
    transaction = _open_transaction(broker, unstable, subscribed)
    live, leaving = Group(broker), Group(broker)
    protocols = {"range": subscription(subscribed.name)}
    # static members are admitted at once: no cleanup can remove the group between the member id and the join
    instance = "one" if broker.version_for(JoinGroupRequest) >= WITH_INSTANCES else None
    (stays,), (leaves,) = (group.stable(1, protocols=protocols, instance_id=instance) for group in (live, leaving))
    began = time.monotonic()
    expect_committed(broker, nobodys, {(subscribed, 0): 5})
    for member in (stays, leaves):
        offsets = {(subscribed, 0): 5, (other, 0): 6}
        codes = commit(broker, member.group.name, offsets, generation=member.generation, member_id=member.id)
        broker.expect_equal("the errors of OffsetCommit", set(codes.values()), {ErrorCode.NONE})
    keep_until(began + RETENTION_S / 10, stays, leaves)
    empty_since = time.monotonic()
    broker.expect_error(leaves.leave(), ErrorCode.NONE, what="LeaveGroup")
    expect_gone(broker, nobodys, subscribed, began, stays, "the offset without members")
    if broker.is_kafka("2.4"):
        expect_gone(broker, live.name, other, began, stays, "the live group's offset of another topic")
    expect_gone(broker, leaving.name, subscribed, empty_since, stays, "the offset of the member that left")
    expect_offset(broker, live.name, subscribed, 5, "the live group's offset of its topic")
    if transaction is not None:
        expect_offset(broker, unstable, subscribed, 5, "the offset before that of an open transaction")
        transaction.end(committed=False)


def _open_transaction(broker: Broker, group: str, topic: Topic) -> TransactionalClient | None:
    """Commit offset 5 of a group without members, and 7 in a transaction that stays open; None where none may for so long."""
    needed = (InitProducerIdRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest)
    if not broker.is_kafka("4.0") or any(each.KEY not in broker.subject.api_versions for each in needed):
        return None
    client = TransactionalClient(broker, CLASSIC, timeout_ms=OPEN_FOR_MS, initialised=False)
    if client.init().error_code != ErrorCode.NONE:
        return None
    expect_committed(broker, group, {(topic, 0): 5})
    client.write_offsets(group, {(topic, 0): 7})
    return client


def keep_until(until_s: float, *members: Member) -> None:
    """Send heartbeats of these members until `until_s`."""
    while time.monotonic() < until_s:
        for member in members:
            member.expect(member.heartbeat(), "Heartbeat")
        time.sleep(0.5)


def expect_gone(broker: Broker, group: str, topic: Topic, since_s: float, alive: Member, what: str) -> None:
    """Expect that the offset is removed, and not before its retention is over; sends heartbeats of `alive` meanwhile."""

    def gone() -> bool:
        alive.expect(alive.heartbeat(), "Heartbeat")
        found = committed(broker, group, [(topic, 0)])
        return [one.offset for one in found.partitions.values()] == [NOTHING]

    broker.eventually(gone, f"{what} is removed", within_s=RETENTION_S + GONE_WITHIN_S, every_s=0.2)
    lived_s = time.monotonic() - since_s
    broker.expect(
        lived_s >= RETENTION_S - EARLY_S,
        f"{what} is removed after {lived_s:.0f} s, and not before its retention is over",
    )


@requirement(
    "OFF-16",
    notices="data: a consumer of a topic that was made again begins at the old one's offset, and passes over records",
    source="GroupCoordinatorService.onPartitionsDeleted; OffsetMetadataManager.onPartitionsDeleted",
    sentence="When a topic is deleted the offsets that groups committed for it go, and one of the same name that is made later "
    "has none.",
    accepted="offset -1 for the deleted topic's partitions and in all of the group, the other topic's stay; -1 after it is "
    "made "
    "again",
    exclusive=True,
)
def deleted_topics(broker: Broker) -> None:
    broker.needs_deletion()
    deleted, kept = broker.topic(2), broker.topic()
    group = Group(broker).name
    expect_committed(broker, group, {(deleted, 0): 1, (deleted, 1): 2, (kept, 0): 3})
    version = broker.version_for(DeleteTopicsRequest)
    answer = broker.call(delete_topics_request([deleted.name], version), version)
    broker.expect_equal("the error of DeleteTopics", [one.error_code for one in answer.responses], [ErrorCode.NONE])

    def gone() -> bool:
        found = committed(broker, group, [(deleted, 0), (deleted, 1)], version=BY_NAME)
        return {one.offset for one in found.partitions.values()} == {NOTHING}

    broker.eventually(gone, "the offsets of the deleted topic are gone", within_s=30)
    found = committed(broker, group, None, known=[deleted, kept], version=BY_NAME).partitions
    broker.expect_equal("all of the group", {key: one.offset for key, one in found.items()}, {(kept, 0): 3})
    again = broker.topic(2, name=deleted.name)
    expect_offset(broker, group, again, NOTHING, "the offset of the topic that was made again")


@requirement(
    "OFF-27",
    notices="client: sarama's Consumer.Offsets.Retention has no effect",
    source="OffsetCommitRequest schema, retention_time_ms; KIP-211; OffsetExpirationConditionImpl",
    sentence="In v2 to v4 a client says how long its offset shall be kept while the group has no member: it goes after that; one "
    "without a time of its own stays for offsets.retention.minutes.",
    accepted="with 3 seconds: offset -1 after 3 seconds, not before; the other partition's offset stays",
    configs=SHORT_RETENTION,
    alone=True,
    deadline_s=90,
)
def own_retention(broker: Broker) -> None:
    topic = broker.topic(2)
    version = RETENTION_REPORTED[-1]
    group = Group(broker).name
    expect_committed(broker, group, {(topic, 1): 7})
    began = time.monotonic()
    code = commit_one(broker, group, topic, 5, version=version, retention_time_ms=3_000)
    broker.expect_error(code, ErrorCode.NONE, what=f"OffsetCommit v{version}")

    def gone() -> bool:
        found = committed(broker, group, [(topic, 0)])
        return [one.offset for one in found.partitions.values()] == [NOTHING]

    broker.eventually(gone, "the offset with its own retention is removed", within_s=BEFORE_THE_OTHER_S, every_s=0.1)
    lived_s = time.monotonic() - began
    broker.expect(lived_s >= 2.9, f"it is gone after {lived_s:.1f} s, and not before its retention is over")
    expect_offset(broker, group, topic, 7, "the offset of the other partition", partition=1)


@requirement(
    "OFF-31",
    notices="none seen: clients send -1 or what was configured, as sarama's Consumer.Offsets.Retention",
    source="OffsetCommitRequest schema, retention_time_ms",
    sentence="In v2 to v4 a commit is taken whatever number of milliseconds it asks to be kept for, the largest and negative "
    "ones too.",
    accepted="NONE(0) for 0, -2, and the smallest and the largest number of 64 bits; and the offset is reported",
)
def any_retention(broker: Broker) -> None:
    topic = broker.topic()
    for version in RETENTION_REPORTED:
        for retention_ms in (0, -2, -(2**63), 2**63 - 1):
            with broker.case(f"v{version}, {retention_ms} ms"):
                group = Group(broker).name
                code = commit_one(broker, group, topic, 5, version=version, retention_time_ms=retention_ms)
                broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit")
                expect_offset(broker, group, topic, 5, "the offset")


@requirement(
    "OFF-28",
    notices="data: after a restart consumers read again, or offsets that were deleted are back",
    source="GroupCoordinatorService.onElection; CoordinatorLoaderImpl",
    sentence="Commits that were acknowledged, and deletions of offsets, are in force after the only broker was killed and "
    "started again.",
    accepted="the last offset of each of 20 groups; offset -1 where it was deleted",
    hooks=ENDS,
    deadline_s=120,
)
def broker_starts_again(broker: Broker) -> None:
    topic = broker.topic()
    names = [Group(broker).name for _ in range(20)]
    for number, name in enumerate(names):
        expect_committed(broker, name, {(topic, 0): 1_000})
        expect_committed(broker, name, {(topic, 0): number})
    delete_offsets(broker, names[0], [(topic, 0)])
    with cluster(broker) as nodes:
        for node in list(nodes.addresses):
            nodes.kill(node)
            nodes.restart(node)
        for number, name in enumerate(names):
            offset = number if number else NOTHING
            await_offset(broker, name, topic, offset, f"the offset of group {number}", within_s=STATE_WITHIN_S)
