"""OFF: the clients whose commits a group accepts: its members, or, while it has none, clients that are not members."""

from conformance.answers import only
from conformance.broker import Broker
from conformance.classic_groups import FIRST_WITH_INSTANCE, JOINS_AGAIN, Group, subscription
from conformance.committed_offsets import NOTHING, commit, commit_one, committed, expect_offset
from conformance.requirement import requirement
from conformance.requirements.offset_commits import GROUP_ABSENT, commit_versions
from reference.protocol.errors import ErrorCode

REFUSED = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
"""Errors that refuse a commit permanently; the Java consumer reports each as a failed commit."""


@requirement(
    "OFF-05",
    notices="stuck: consumers with assign() and kafka-consumer-groups --reset-offsets commit like this",
    source="OffsetMetadataManager.validateOffsetCommit; ClassicGroup.validateOffsetCommit",
    sentence="A client that is no member commits without generation and member id, to a group that was not used and to one whose "
    "members have left.",
    accepted="NONE(0) in every version, and the offset is reported",
)
def simple_consumers(broker: Broker) -> None:
    topic = broker.topic()
    left = Group(broker)
    (member,) = left.stable(1)
    broker.expect_error(member.leave(), ErrorCode.NONE, what="LeaveGroup")
    for version in commit_versions(broker):
        for name in (Group(broker).name, left.name):
            code = commit_one(broker, name, topic, 10 + version, version=version)
            broker.expect_error(code, ErrorCode.NONE, what=f"OffsetCommit v{version}")
            expect_offset(broker, name, topic, 10 + version, "the offset")


@requirement(
    "OFF-06",
    notices="data: a tool or a consumer with assign() moves the offsets of a group under its members",
    source="ClassicGroup.validateOffsetCommit",
    sentence="While a group has members a commit without a generation and a member id is refused with UNKNOWN_MEMBER_ID; asking "
    "needs no membership.",
    accepted="UNKNOWN_MEMBER_ID(25), and the offset stays; OffsetFetch reports it to any client",
)
def no_strangers(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker)
    (member,) = group.stable(1)
    code = commit_one(broker, group.name, topic, 3, generation=member.generation, member_id=member.id)
    broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit of the member")
    for version in commit_versions(broker):
        code = commit_one(broker, group.name, topic, 9, version=version)
        broker.expect_error(code, ErrorCode.UNKNOWN_MEMBER_ID, what=f"OffsetCommit v{version} without a member id")
    expect_offset(broker, group.name, topic, 3, "the offset, as any client receives it")


@requirement(
    "OFF-07",
    notices="operator: offsets that were deleted with their group come back, by a member that was away meanwhile",
    source="OffsetMetadataManager.validateOffsetCommit; KIP-848; ConsumerCoordinator.OffsetCommitResponseHandler (Java)",
    sentence="A commit in a generation of a group that does not exist is refused: from v9 on with GROUP_ID_NOT_FOUND, before "
    "with ILLEGAL_GENERATION.",
    accepted="GROUP_ID_NOT_FOUND(69) or ILLEGAL_GENERATION(22), by the version; nothing is stored",
    tolerated="the other one, or UNKNOWN_MEMBER_ID(25): the commit fails all the same",
    since="4.0",
)
def absent_group(broker: Broker) -> None:
    topic = broker.topic()
    for version in commit_versions(broker):
        name = Group(broker).name
        wanted = ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_ABSENT else ErrorCode.ILLEGAL_GENERATION
        found = [*committed(broker, name, [(topic, 0)]).partitions.values()]
        before = only(found, "partition in the answer to OffsetFetch").offset  # OFF-02 judges it
        for member_id in ("", "nobody"):
            code = commit_one(broker, name, topic, 1, generation=1, member_id=member_id, version=version)
            broker.expect_error(code, wanted, tolerated=REFUSED, what=f"v{version}")
        expect_offset(broker, name, topic, min(before, 0), "the offset")


@requirement(
    "OFF-08",
    notices="data: a member that lost its partitions commits over the one that has them now",
    source="ClassicGroup.validateOffsetCommit, validateMember; KIP-345",
    sentence="A commit in another generation is refused with ILLEGAL_GENERATION, of an unknown member with UNKNOWN_MEMBER_ID, "
    "of a static member that was replaced with FENCED_INSTANCE_ID; then nothing of it is stored.",
    accepted="22, 25 and 82 for every partition of the request; the offsets stay",
    tolerated="NONE(0) for an unknown instance id of the member that has the partitions: no client sends it; "
    "REBALANCE_IN_PROGRESS(27) for another generation: clients join again on either",
    apis={"JoinGroup": FIRST_WITH_INSTANCE, "OffsetCommit": 7},
)
def fenced_commits(broker: Broker) -> None:
    topic = broker.topic(2)
    group = Group(broker)
    (old,) = group.stable(1, instance_id="one")
    both = {(topic, 0): 5, (topic, 1): 6}
    codes = commit(broker, group.name, both, generation=old.generation, member_id=old.id, instance_id="one")
    broker.expect_equal("the errors of the member", set(codes.values()), {ErrorCode.NONE})
    new = old.successor()
    new.join()
    tries = (
        ("a later generation", new.generation + 1, new.id, "one", ErrorCode.ILLEGAL_GENERATION),
        ("an earlier generation", new.generation - 1, new.id, "one", ErrorCode.ILLEGAL_GENERATION),
        ("an unknown member", new.generation, "nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("the one that was replaced", new.generation, old.id, "one", ErrorCode.FENCED_INSTANCE_ID),
    )
    for reported, generation, id, instance, error in tries:
        codes = commit(
            broker,
            group.name,
            {(topic, 0): 50, (topic, 1): 60},
            generation=generation,
            member_id=id,
            instance_id=instance,
        )
        broker.expect_equal(f"the number of results for {reported}", len(codes), 2)
        same = JOINS_AGAIN if error == ErrorCode.ILLEGAL_GENERATION else ()
        for code in codes.values():
            broker.expect_error(code, error, tolerated=same, what=f"OffsetCommit of {reported}")
    for partition, offset in ((0, 5), (1, 6)):
        expect_offset(broker, group.name, topic, offset, f"the offset of partition {partition}", partition=partition)
    if broker.is_kafka("3.0"):  # until then a commit was not held against the instance id of another member
        (code,) = commit(
            broker, group.name, {(topic, 0): 5}, generation=new.generation, member_id=new.id, instance_id="two"
        ).values()
        broker.expect_error(
            code,
            ErrorCode.UNKNOWN_MEMBER_ID,
            tolerated={ErrorCode.NONE},
            what="the member, with an unknown instance id",
        )


@requirement(
    "OFF-09",
    notices="data: a commit as partitions are revoked must count, and one before the assignment is known must not",
    source="ClassicGroup.validateOffsetCommit",
    sentence="A member's commit is refused with REBALANCE_IN_PROGRESS while the group waits for the leader's assignment, and "
    "taken while it waits for its members to join again.",
    accepted="REBALANCE_IN_PROGRESS(27) after joining, NONE(0) when stable, and NONE(0) in the old generation while others join",
)
def commits_while_rebalancing(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker)
    one, other = group.member(), group.member()

    def committed_by_one(offset: int) -> int:
        return commit_one(broker, group.name, topic, offset, generation=one.generation, member_id=one.id)

    one.join()
    broker.expect_error(committed_by_one(1), ErrorCode.REBALANCE_IN_PROGRESS, what="joined, not synchronised")
    expect_offset(broker, group.name, topic, NOTHING, "the offset")
    group.synchronise([one])
    broker.expect_error(committed_by_one(2), ErrorCode.NONE, what="stable")
    other.identify()
    other.begin_join()
    group.await_rebalance(one)
    broker.expect_error(committed_by_one(3), ErrorCode.NONE, what="while another one joins")
    expect_offset(broker, group.name, topic, 3, "the offset")
    one.begin_join()
    for member in (one, other):
        member.expect_joined()
    broker.expect_error(committed_by_one(4), ErrorCode.REBALANCE_IN_PROGRESS, what="both joined, not synchronised")


@requirement(
    "OFF-25",
    notices="stuck: Connect's sinks, and all whose groups are of their own type, commit like this",
    source="KIP-62; ClassicGroup.validateOffsetCommit; documentation, consumer configs",
    sentence="A group of another protocol type than `consumer` commits and fetches like one of consumers, as Connect's sinks "
    "and Streams do with their own.",
    accepted="a member of the type connect commits in its generation, not in the one before; its offset is reported",
    tolerated="REBALANCE_IN_PROGRESS(27) for another generation: clients join again on either",
)
def offsets_of_other_types(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker, protocol_type="connect")
    (member,) = group.stable(1, protocols={"sessioned": b"\x01\x02"})
    if member.generation == 0:  # -1 would be none
        group.rejoin([member])
        group.synchronise([member])
    for shift, error in ((0, ErrorCode.NONE), (-1, ErrorCode.ILLEGAL_GENERATION)):
        code = commit_one(
            broker, group.name, topic, 8 + shift, generation=member.generation + shift, member_id=member.id
        )
        same = JOINS_AGAIN if shift else ()
        broker.expect_error(code, error, tolerated=same, what=f"OffsetCommit in generation {shift:+d}")
    expect_offset(broker, group.name, topic, 8, "the offset")


@requirement(
    "OFF-26",
    notices="data: who takes a partition over begins somewhere else than the one before stopped",
    source="OffsetMetadataManager; documentation, consumer groups",
    sentence="Offsets belong to the group, not to the member: a member that takes a partition over receives what the one before "
    "committed, through rebalances and while the group has no member.",
    accepted="the same offset after the member left, to a new member in a later generation, and as the base of its commit",
)
def handed_over(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker)
    (first,) = group.stable(1, protocols={"range": subscription(topic.name)})
    code = commit_one(broker, group.name, topic, 41, generation=first.generation, member_id=first.id)
    broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit of the first")
    broker.expect_error(first.leave(), ErrorCode.NONE, what="LeaveGroup")
    expect_offset(broker, group.name, topic, 41, "the offset while the group has no member")
    (second,) = group.stable(1, protocols={"range": subscription(topic.name)})
    expect_offset(broker, group.name, topic, 41, "the offset that the second receives")
    late = commit_one(broker, group.name, topic, 1, generation=first.generation, member_id=first.id)
    refused = ErrorCode.UNKNOWN_MEMBER_ID
    broker.expect_error(
        late, refused, tolerated=(ErrorCode.ILLEGAL_GENERATION,), what="a late commit of the former member"
    )
    code = commit_one(broker, group.name, topic, 42, generation=second.generation, member_id=second.id)
    broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit of the second")
    expect_offset(broker, group.name, topic, 42, "the offset in the end")
