"""GRP: failures that a classic group survives: the end of its coordinator, and metadata that is too large."""

from conformance.broker import Broker
from conformance.classic_groups import CONSUMER, JOINS_AGAIN, Group, Member, share_of
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.committed_offsets import await_offset, commit_one
from conformance.requirement import requirement
from conformance.wire import Closed
from reference.protocol.errors import ErrorCode

DEADLINE_S = 180.0
ENDS = ("kill", "restart")
TOO_LARGE = 2 * 1024 * 1024
"""A size above the largest record of the offsets topic, whose default max.message.bytes is one MiB."""
NAMES = 60
"""The number of names that are tried to find a group that a given node coordinates."""
UNANSWERED_S = 2.0


def group_at(broker: Broker, nodes: JudgedCluster, *wanted: int) -> tuple[Group, int]:
    """A new group and its coordinator: one of these nodes, or another one if they coordinate none of the tried names.

    Without a rebalance of leaders, all groups move to the nodes in which no fault is injected.
    """
    places = {nodes.address(node): node for node in wanted}
    tried = [broker.unused_name("group") for _ in range(NAMES)]
    name = next((name for name in tried if broker.coordinator(name) in places), tried[-1])
    group = Group(broker, name)
    return group, nodes.node_at(group.address)


def expect_going_on(group: Group, members: list[Member], what: str) -> None:
    """Expect that the group has the same generation, members and assignments as before, and admits another member."""
    broker = group.broker
    for member in members:
        member.hang_up()
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what=f"Heartbeat {what}")
        answer = member.sync()
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"SyncGroup {what}")
        broker.expect_equal(f"the assignment {what}", bytes(answer.assignment), share_of(member))
        code = member.heartbeat(member.generation - 1)
        broker.expect_error(
            code, ErrorCode.ILLEGAL_GENERATION, tolerated=JOINS_AGAIN, what="Heartbeat in the generation before"
        )
    newcomer, before = group.member(), members[0].generation
    group.admit(newcomer, members)
    broker.expect_equal("the next generation", newcomer.generation, before + 1)


@requirement(
    "GRP-24",
    notices="data: a group that counts from 1 again takes commits of members that lost their partitions",
    source="GroupCoordinatorService.onElection; documentation, group coordinator",
    sentence="A group's state survives the end of its coordinator: its members go on with the next one, in their generation, "
    "with their assignments, and no member joins again for it.",
    accepted="after the coordinator's kill -9: heartbeats, the same assignments and commits in the same generation; what was "
    "committed is there; the next rebalance makes the next generation",
    tolerated="REBALANCE_IN_PROGRESS(27) for the generation before: clients join again on either",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S, requires=("COO-01",),
)  # fmt: skip
def coordinator_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        one, other, third = nodes.cast()
        topic = nodes.topic(third)
        group, coordinator = group_at(broker, nodes, one, other)
        members = group.stable(2)
        leader = members[0]
        code = commit_one(broker, group.name, topic, 7, generation=leader.generation, member_id=leader.id)
        broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit before")
        nodes.kill(coordinator)
        group.await_coordinator(within_s=STATE_WITHIN_S)
        broker.expect(group.address != nodes.address(coordinator), "another node coordinates the group")
        await_offset(broker, group.name, topic, 7, "the offset that was committed before", within_s=STATE_WITHIN_S)
        code = commit_one(broker, group.name, topic, 8, generation=leader.generation, member_id=leader.id)
        broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit in the same generation")
        expect_going_on(group, members, "at the next coordinator")


@requirement(
    "GRP-44",
    notices="data: a group that counts from 1 again takes commits of members that lost their partitions",
    source="GroupCoordinatorService.onElection; CoordinatorLoaderImpl",
    sentence="A group's state survives that its only broker is killed and starts again: its members go on in their generation.",
    accepted="the same generation, members and assignments, and the next generation after it",
    tolerated="REBALANCE_IN_PROGRESS(27) for the generation before: clients join again on either",
    hooks=ENDS,
    deadline_s=120,
)
def broker_starts_again(broker: Broker) -> None:
    group = Group(broker)
    members = group.stable(2)
    with cluster(broker) as nodes:
        node = nodes.node_at(group.address)
        nodes.kill(node)
        nodes.restart(node)
        group.await_coordinator(within_s=STATE_WITHIN_S)
        expect_going_on(group, members, "after the start")


@requirement(
    "GRP-45",
    notices="client: a group with an assignment above max.message.bytes does not learn what is wrong",
    source="GroupMetadataManager.classicGroupSyncToClassicGroup; max.message.bytes of __consumer_offsets",
    sentence="A group whose state does not fit into a record receives an error when it synchronises; other groups do not notice, "
    "and it can go on with less.",
    accepted="an error for an assignment of 2 MiB, NONE(0) for another group's members meanwhile, and a smaller assignment "
    "after joining again",
    tolerated="that the assignment is taken, and comes whole",
)
def too_large(broker: Broker) -> None:
    group, neighbour = Group(broker, protocol_type="connect"), Group(broker)
    member = group.member()
    member.join()
    (other,) = neighbour.stable(1)
    data = bytes(range(256)) * (TOO_LARGE // 256)
    answer = member.sync({member.id: data})
    if answer.error_code == ErrorCode.NONE:
        broker.expect(bytes(answer.assignment) == data, "every byte comes back")
        broker.tolerate(f"an assignment of {TOO_LARGE} bytes is taken")
    else:
        broker.saw(f"an assignment of {TOO_LARGE} bytes: error {answer.error_code}")
    broker.expect_error(other.heartbeat(), ErrorCode.NONE, what="another group's Heartbeat")
    member.join()
    group.synchronise([member])
    broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="its Heartbeat after joining again")


@requirement(
    "GRP-46",
    notices="security: one client with bad metadata stops the groups of all others",
    source="ClassicGroup.computeSubscribedTopics; ConsumerProtocol",
    sentence="Metadata of the protocol type `consumer` that are no subscription harm their own group at most: all other groups "
    "are served.",
    accepted="whatever its own group receives, or nothing, and if it is a generation then with the same bytes; 20 other "
    "groups become stable",
    tolerated="a generation with other metadata, which harms its own group alone, and a closed connection",
    draft="found while the others were confirmed: Kafka 4.3.1 looks into these metadata, and does not answer the join with some "
    "that are malformed (the error is in its log only)",
    deadline_s=60,
)
def no_subscription(broker: Broker) -> None:
    for data in (b"", b"\x00", b"metadata", b"\x00\x00\x7f\xff\xff\xff", b"\xff\xff\xff\xff"):
        with broker.case(f"{data!r}"):
            try:
                odd = Group(broker, protocol_type=CONSUMER).member(protocols={"range": data})
                odd.identify()
                odd.begin_join()
                if odd.connection.is_silent(UNANSWERED_S):
                    broker.saw("its join is not answered")
                    continue
                answer = odd.joined()
            except Closed:
                broker.tolerate("its connection is closed")
                continue
            broker.saw(f"its join: error {answer.error_code}")
            reported = [bytes(one.metadata) for one in answer.members]
            if answer.error_code == ErrorCode.NONE and reported != [data]:
                broker.tolerate(f"{len(reported[0]) if reported else 'no'} bytes of other metadata are reported")
    for _ in range(20):
        Group(broker).stable(1)
    broker.saw("20 other groups are stable")
