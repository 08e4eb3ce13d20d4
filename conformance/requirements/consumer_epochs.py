"""CGH: the member epochs that a KIP-848 consumer group accepts in heartbeats, commits and fetches of offsets."""

from conformance.broker import Broker
from conformance.committed_offsets import NOTHING, commit, commit_one, committed, expect_offset
from conformance.consumers import (
    DESCRIBE,
    HEARTBEAT,
    LEAVING,
    Consumer,
    described_one,
    joined,
    partitions_of,
    reported_in,
    settle,
    unused_group,
)
from conformance.requirement import requirement
from conformance.requirements.consumer_heartbeats import EPOCHS_IN_COMMITS, SINCE
from linearizability.client.group_member import owned_partitions as listed
from reference.protocol.errors import ErrorCode


@requirement(
    "CGH-07",
    notices="stuck: Java and librdkafka join again on UNKNOWN_MEMBER_ID; on a success they keep heartbeating without partitions",
    source="KIP-848; ConsumerGroup.getOrMaybeCreateMember; GroupMetadataManager.consumerGroup",
    sentence="A heartbeat with an epoch above 0, or a leave, of a member that is not in the group is answered UNKNOWN_MEMBER_ID; "
    "in a group that does not exist, GROUP_ID_NOT_FOUND.",
    accepted="UNKNOWN_MEMBER_ID(25) and GROUP_ID_NOT_FOUND(69), for epochs 1 and 5 and for leaving",
    since=SINCE,
    apis=HEARTBEAT,
)
def unknown_members(broker: Broker) -> None:
    topic = broker.topic()
    group = unused_group(broker)
    joined(broker, group, 1, [topic])
    for name, error in ((group, ErrorCode.UNKNOWN_MEMBER_ID), (unused_group(broker), ErrorCode.GROUP_ID_NOT_FOUND)):
        stranger = Consumer(broker, name, [topic])
        for epoch in (1, 5, LEAVING):
            answer = stranger.ask(member_epoch=epoch, topic_partitions=[])
            broker.expect_error(answer.error_code, error, what=f"epoch {epoch}")


@requirement(
    "CGH-08",
    notices="data: a removed member would keep its partitions; a member that lost a response must not be fenced",
    source="KIP-848; GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid",
    sentence="A heartbeat with an epoch above the member's, or below it, is answered FENCED_MEMBER_EPOCH. One with the previous "
    "epoch, whose owned partitions are all assigned to the member, is answered NONE: the last response was lost.",
    accepted="FENCED_MEMBER_EPOCH(110) for epochs above, for the epoch before the previous one, and for the previous epoch with "
    "partitions of others; NONE(0) with the current epoch and assignment for the previous epoch; the member continues",
    since=SINCE,
    apis=HEARTBEAT,
)
def fenced_epochs(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    (consumer,) = joined(broker, group, 1, [topic])
    epochs, newcomers = [consumer.epoch], [Consumer(broker, group, [topic]) for _ in range(2)]

    def moved() -> bool:
        consumer.beat()
        if consumer.epoch != epochs[-1]:
            epochs.append(consumer.epoch)
            return True
        return False

    for newcomer in newcomers:  # two, so that the epoch before the previous one is not 0, which joins
        newcomer.join()
        broker.eventually(moved, "the member receives a later epoch")
    before, now = epochs[-2:]
    own, others = listed(consumer.assigned), listed(partitions_of(topic))
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    for reported, epoch, owned in (
        ("a later epoch", now + 1, own), ("a far later epoch", 2**31 - 1, own),
        ("the epoch before the one before", before - 1, own),
        ("the epoch before, with partitions of another", before, others),
    ):  # fmt: skip
        answer = consumer.ask(member_epoch=epoch, topic_partitions=owned)
        broker.expect_error(answer.error_code, fenced, what=reported)
    answer = consumer.ask(member_epoch=before, topic_partitions=own)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="the epoch before")
    broker.expect_equal(
        "the epoch and assignment that it receives",
        (answer.member_epoch, reported_in(answer)),
        (now, consumer.assigned),
    )
    settle(consumer, *newcomers, topics=[topic])


@requirement(
    "CGH-14",
    notices="data: a member that lost its partitions would commit for them; Java retries with its new epoch on this error",
    source="KIP-848; ConsumerGroup.validateOffsetCommit, validateOffsetFetch",
    sentence="From v9 on a member commits and fetches offsets with its epoch. Another epoch is answered STALE_MEMBER_EPOCH, an "
    "unknown member UNKNOWN_MEMBER_ID. A commit below v9, which has no member epoch, is answered UNSUPPORTED_VERSION.",
    accepted="NONE(0), STALE_MEMBER_EPOCH(113), UNKNOWN_MEMBER_ID(25) and UNSUPPORTED_VERSION(35); no offset of a refused "
    "commit is stored; a client that is no member can fetch",
    since=SINCE,
    apis=HEARTBEAT | {"OffsetCommit": EPOCHS_IN_COMMITS, "OffsetFetch": EPOCHS_IN_COMMITS},
    requires=("CGH-41",),
)
def commits_by_epoch(broker: Broker) -> None:
    topic = broker.topic()
    group = unused_group(broker)
    (consumer,) = joined(broker, group, 1, [topic])
    stale, unknown, unsupported = (
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
    )
    epoch = consumer.epoch
    before = 0  # in which the member had no partition: KIP-1251 accepts an earlier epoch in which it had this one
    for version, said, id, error in (
        (9, epoch, consumer.id, ErrorCode.NONE), (9, epoch + 1, consumer.id, stale), (9, before, consumer.id, stale),
        (9, epoch, "unknown", unknown), (8, epoch, consumer.id, unsupported), (2, epoch, consumer.id, unsupported),
    ):  # fmt: skip
        offset = 70 if error == ErrorCode.NONE else 99
        code = commit_one(broker, group, topic, offset, version=version, generation=said, member_id=id)
        broker.expect_error(code, error, what=f"OffsetCommit v{version} of {id} in epoch {said}, after {epoch}")
    broker.expect_error(commit_one(broker, group, topic, 99), unknown, what="OffsetCommit without a member id")
    for epoch, id, error in (
        (consumer.epoch, consumer.id, ErrorCode.NONE), (consumer.epoch + 1, consumer.id, stale),
        (consumer.epoch - 1, consumer.id, stale), (consumer.epoch, "nobody", unknown), (-1, None, ErrorCode.NONE),
    ):  # fmt: skip
        found = committed(broker, group, [(topic, 0)], version=9, member_id=id, member_epoch=epoch)
        broker.expect_error(found.error_code, error, what=f"OffsetFetch of {id} in epoch {epoch}")
        offsets = [one.offset for one in found.partitions.values()]
        broker.expect_equal("the offsets reported", offsets, [70] if error == ErrorCode.NONE else [])


@requirement(
    "CGH-19",
    notices="stuck: Java and librdkafka join again with the same id after they were fenced",
    source="KIP-848; GroupMetadataManager.consumerGroupHeartbeat",
    sentence="A client that joins again with its member id, as after it was fenced, is the same member: it gets an assignment "
    "again, and counts once.",
    accepted="an epoch that is not lower; at the end, all partitions are assigned to the two members of the group",
    since=SINCE,
    apis=DESCRIBE,
)
def joining_again(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    one, other = joined(broker, group, 2, [topic])
    epoch = one.epoch
    one.join()
    broker.expect(one.epoch >= epoch, f"epoch {one.epoch} is not below {epoch}")
    settle(one, other, topics=[topic])
    found = described_one(broker, group)
    broker.expect_equal("the members", {member.member_id for member in found.members}, {one.id, other.id})


@requirement(
    "CGH-22",
    notices="security: a client with wrong heartbeats could take partitions from the members of a group",
    source="KIP-848; GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid",
    sentence="Heartbeats with false owned partitions or epochs, and of unknown members, change nothing for the group: all "
    "members keep their assignments and epochs.",
    accepted="after heartbeats with others' partitions, unsubscribed topics, partitions that do not exist, wrong epochs and "
    "unknown members: the same assignments, epochs and members",
    since=SINCE,
    apis=DESCRIBE,
)
def liars(broker: Broker) -> None:
    topic, foreign = broker.topic(6), broker.topic(2)
    group = unused_group(broker)
    one, liar = joined(broker, group, 2, [topic])
    held, epoch = (set(one.assigned), set(liar.assigned)), one.epoch
    for lie in (listed(one.assigned), listed(partitions_of(foreign)), listed({(topic.id, 99)}), []):
        liar.ask(topic_partitions=lie)
    for shift in (-1, 1, 100):  # the previous epoch is accepted with the member's own partitions only (CGH-08)
        answer = liar.ask(member_epoch=epoch + shift, topic_partitions=listed(one.assigned))
        broker.expect(answer.error_code != ErrorCode.NONE, f"epoch {shift:+d} is refused")
    for name in (one.id + "x", "nobody"):
        Consumer(broker, group, [topic], id=name).ask(member_epoch=epoch, topic_partitions=[])
    answer = one.beat(full=True)
    broker.expect_equal(
        "the epoch and partitions of the correct member", (answer.member_epoch, reported_in(answer)), (epoch, held[0])
    )
    answer = liar.beat(full=True)
    broker.expect_equal(
        "the epoch and partitions of the member with false heartbeats",
        (answer.member_epoch, reported_in(answer)),
        (epoch, held[1]),
    )
    found = described_one(broker, group)
    broker.expect_equal("the members", {member.member_id for member in found.members}, {one.id, liar.id})


@requirement(
    "CGH-40",
    notices="client: a commit that crosses a rebalance fails, though the member keeps the partition (KIP-1251)",
    source="KIP-1251; ConsumerGroup.validateOffsetCommit",
    sentence="A commit with an earlier epoch of the member is accepted for partitions that it has held since that epoch. For one "
    "that it lost, or got back later, it is answered STALE_MEMBER_EPOCH, and nothing of the request is stored.",
    accepted="NONE(0) for a partition kept through one rebalance, and through two; STALE_MEMBER_EPOCH(113) for a lost one, for "
    "both together, and for the one that came back",
    since="4.3",
    apis=HEARTBEAT | {"OffsetCommit": EPOCHS_IN_COMMITS},
    deadline_s=60,
    requires=("BAS-08",),
)
def late_commits(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    (one,) = joined(broker, group, 1, [topic])
    epoch, before = one.epoch, set(one.assigned)
    other = Consumer(broker, group, [topic])
    other.join()
    settle(one, other, topics=[topic])
    broker.expect(
        0 < len(one.assigned) < len(before), f"{len(one.assigned)} of {len(before)} partitions, and not all, were kept"
    )
    broker.expect(set(one.assigned) < before, f"{one.assigned} is a part of {before}")
    kept, lost = min(one.assigned)[1], min(before - one.assigned)[1]

    def expect_codes(offset: int, what: str, *partitions: int, error: ErrorCode) -> None:
        offsets = {(topic, partition): offset for partition in partitions}
        codes = commit(broker, group, offsets, version=EPOCHS_IN_COMMITS, generation=epoch, member_id=one.id)
        broker.expect_equal(f"the errors for {what}", codes, dict.fromkeys(offsets, error))

    expect_codes(1, "one that was kept", kept, error=ErrorCode.NONE)
    expect_codes(2, "one that was lost", lost, error=ErrorCode.STALE_MEMBER_EPOCH)
    expect_codes(3, "both together", kept, lost, error=ErrorCode.STALE_MEMBER_EPOCH)
    expect_offset(broker, group, topic, 1, "the offset of the one that was kept", partition=kept)
    other.leave()
    settle(one, topics=[topic])
    expect_codes(4, "one that was kept, two epochs later", kept, error=ErrorCode.NONE)
    expect_codes(5, "one that came back", lost, error=ErrorCode.STALE_MEMBER_EPOCH)
    expect_offset(broker, group, topic, NOTHING, "the offset of the one that was lost", partition=lost)
