"""GRP: generations of a classic group: their numbers, when members must join again, and requests that are fenced."""

from conformance.broker import Broker
from conformance.classic_groups import JOINS_AGAIN, Group, Member, share_of, subscription
from conformance.committed_offsets import NOTHING, commit_one, expect_offset
from conformance.requirement import requirement
from reference.protocol.errors import ErrorCode

HELD_FOR_S = 0.3
"""How long a response must be absent to count as held back; a response that is not held back comes at once."""
LARGE = 64 * 1024


def joined_pair(broker: Broker, **options: object) -> tuple[Group, Member, Member]:
    """A group whose leader and follower have joined, but not synchronised."""
    group = Group(broker)
    one, other = group.member(**options), group.member(**options)
    group.admit(one)
    group.admit(other, [one])
    leader, follower = group.leader_first([one, other])
    return group, leader, follower


def stable_pair(broker: Broker) -> tuple[Group, Member, Member]:
    """A stable group of a leader and a follower."""
    group = Group(broker)
    leader, follower = group.stable(2)
    return group, leader, follower


@requirement(
    "GRP-12",
    notices="data: a member that lost its partitions commits for them; clients join again on these codes, and fail on others",
    source="GroupMetadataManager.validateSyncGroup, validateClassicGroupHeartbeat; ClassicGroup.validateOffsetCommit",
    sentence="SyncGroup, Heartbeat and OffsetCommit in another generation than the group's are refused with ILLEGAL_GENERATION, "
    "those of an unknown member with UNKNOWN_MEMBER_ID.",
    accepted="ILLEGAL_GENERATION(22) one generation below and above, UNKNOWN_MEMBER_ID(25) in the right one; nothing is "
    "committed",
    tolerated="REBALANCE_IN_PROGRESS(27) in each case: clients join again on either; NONE(0) in a later generation, which no "
    "member has",
)
def fenced_generations(broker: Broker) -> None:
    topic = broker.topic()
    group, leader, follower = stable_pair(broker)
    stranger = group.member(id="nobody")
    stranger.generation = leader.generation
    wanted = NOTHING
    for member, shift, error in (
        (follower, -1, ErrorCode.ILLEGAL_GENERATION),
        (follower, 1, ErrorCode.ILLEGAL_GENERATION),
        (stranger, 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        reported = f"{'a stranger' if member is stranger else 'a member'} in generation {shift:+d}"
        at = leader.generation + shift
        mild = {ErrorCode.NONE, *JOINS_AGAIN} if shift > 0 else JOINS_AGAIN
        for present in (leader, follower):
            present.heartbeat()  # some hold what follows for most of a session
        code = member.sync(generation=at).error_code
        broker.expect_error(code, error, tolerated=mild, what=f"SyncGroup of {reported}")
        broker.expect_error(member.heartbeat(at), error, tolerated=mild, what=f"Heartbeat of {reported}")
        code = commit_one(broker, group.name, topic, 7, generation=at, member_id=member.id)
        broker.expect_error(code, error, tolerated=mild, what=f"OffsetCommit of {reported}")
        wanted = 7 if code == ErrorCode.NONE else wanted
    expect_offset(broker, group.name, topic, wanted, "the offset")
    for member in (leader, follower):
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="Heartbeat of a member in its generation")


@requirement(
    "GRP-14",
    notices="stuck: clients join again on this code alone: a new member waits for ever, and its partitions with it",
    source="GroupMetadataManager.classicGroupHeartbeatToClassicGroup",
    sentence="A member's Heartbeat is answered with REBALANCE_IN_PROGRESS while the group waits for its members to join again, "
    "and with no error while it waits for the leader's assignment and when it is stable.",
    accepted="NONE(0) before (since 2.6.1, KAFKA-10134) and after the leader synchronised; REBALANCE_IN_PROGRESS(27) once "
    "another member joins; UNKNOWN_MEMBER_ID(25) when all have left",
    tolerated="REBALANCE_IN_PROGRESS(27) before the leader synchronised: Java leaves it aside then, others send no Heartbeat yet",
)
def heartbeats(broker: Broker) -> None:
    group, leader, follower = joined_pair(broker)
    waiting = ErrorCode.NONE if broker.is_kafka("2.6.1") else ErrorCode.REBALANCE_IN_PROGRESS
    mild = {ErrorCode.REBALANCE_IN_PROGRESS}
    for member in (leader, follower):
        broker.expect_error(member.heartbeat(), waiting, tolerated=mild, what="joined, not synchronised")
    group.synchronise([leader, follower])
    for member in (leader, follower):
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="stable")
    third = group.member()
    third.identify()
    for member in (leader, follower):
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="a new member has an id and has not joined")
    third.begin_join()
    group.await_rebalance(leader)
    broker.expect_error(follower.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, what="a new member joins")
    follower.begin_join()
    broker.expect_error(leader.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, what="a follower joins again")
    leader.begin_join()
    for member in (third, follower, leader):
        member.expect_joined()
    for member in (third, follower, leader):
        broker.expect_error(member.heartbeat(), waiting, tolerated=mild, what="joined again")
    for member in (third, follower, leader):
        broker.expect_error(member.leave(), ErrorCode.NONE, what="LeaveGroup")
    broker.expect_error(leader.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, what="all have left")


@requirement(
    "GRP-15",
    notices="stuck: clients join again on this code; Java gives up on one that it does not expect",
    source="GroupMetadataManager.classicGroupSyncToClassicGroup, prepareRebalance",
    sentence="While the group waits for its members to join again SyncGroup is answered with REBALANCE_IN_PROGRESS; so is one "
    "that was held when that began.",
    accepted="REBALANCE_IN_PROGRESS(27) for the leader's and a follower's, and for a held one, without an assignment",
)
def sync_while_joining(broker: Broker) -> None:
    group, leader, follower = joined_pair(broker)
    follower.begin_sync()
    third = group.member()
    third.identify()
    third.begin_join()
    held = follower.synced()
    broker.expect_error(held.error_code, ErrorCode.REBALANCE_IN_PROGRESS, what="a SyncGroup that was held")
    broker.expect_equal("its assignment", bytes(held.assignment), b"")
    for member, assignments in ((leader, {leader.id: b"too late"}), (follower, {})):
        answer = member.sync(assignments)
        broker.expect_error(answer.error_code, ErrorCode.REBALANCE_IN_PROGRESS, what="SyncGroup")
        broker.expect_equal("its assignment", bytes(answer.assignment), b"")
    for member in (leader, follower):
        member.begin_join()
    for member in (third, leader, follower):
        member.expect_joined()
    group.synchronise([leader, follower, third])


@requirement(
    "GRP-16",
    notices="stuck: leaders of all clients join again when a topic grew; without a rebalance no client reads the new partitions",
    source="GroupMetadataManager.classicGroupJoinExistingMember",
    sentence="In a stable group a follower that joins again with the same metadata receives its generation at once and disturbs "
    "no other member; the leader, or a follower with other metadata, makes all join again.",
    accepted="for the follower the same generation and no rebalance; for the leader, and for a follower with other metadata, "
    "REBALANCE_IN_PROGRESS(27) for the other one, and the next generation",
)
def joining_again(broker: Broker) -> None:
    group, leader, follower = stable_pair(broker)
    before = follower.generation
    answer = follower.ask_to_join()
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="a follower with the same metadata")
    broker.expect_equal("its generation", answer.generation_id, before)
    broker.expect_equal("the leader that it receives", answer.leader, leader.id)
    broker.expect_error(leader.heartbeat(), ErrorCode.NONE, what="the leader's Heartbeat")
    answer = follower.sync()
    broker.expect_equal("the follower's assignment", bytes(answer.assignment), share_of(follower))
    for member, other, reported in ((leader, follower, "the leader"), (follower, leader, "other metadata")):
        if member is follower:
            follower.protocols["range"] = subscription(user_data=b"other")
        member.begin_join()
        group.await_rebalance(other)
        broker.saw(f"{reported}: the other one is asked to join again")
        other.begin_join()
        for one in (member, other):
            one.expect_joined()
        before += 1
        broker.expect_equal(f"{reported}: the generations", [leader.generation, follower.generation], [before, before])
        reported_to_leader = group.leader_first([leader, follower])[0].answer.members
        metadata = {one.member_id: bytes(one.metadata) for one in reported_to_leader}
        broker.expect_equal("the metadata", metadata, {one.id: one.protocols["range"] for one in (leader, follower)})
        group.synchronise([leader, follower])


@requirement(
    "GRP-29",
    notices="security: one client with wrong requests puts the members of a group out, or stops it",
    source="KIP-345, KIP-394; GroupMetadataManager.validateSyncGroup, validateClassicGroupHeartbeat",
    sentence="Members that lie about their generation, strangers, and members that have left do no harm to the others: the "
    "group stays stable, in its generation, with its assignment.",
    accepted="dozens of wrong SyncGroup, Heartbeat, LeaveGroup, OffsetCommit and JoinGroup requests are refused; afterwards the "
    "members have their generation, no rebalance and their bytes",
)
def liars(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker)
    leader, follower, gone = group.stable(3)
    broker.expect_error(gone.leave(), ErrorCode.NONE, what="LeaveGroup")
    group.rejoin([leader, follower])
    group.synchronise([leader, follower])
    generation = leader.generation
    stranger = group.member(id="nobody")
    lie = {leader.id: b"a lie", follower.id: b"a lie"}
    refused = 0
    for member in (leader, follower, gone, stranger):
        for at in (generation - 1, generation + 1, -1, 0, 2**31 - 1):
            codes = [
                member.sync(lie, generation=at).error_code,
                member.heartbeat(at),
                commit_one(broker, group.name, topic, 9, generation=at, member_id=member.id),
            ]
            if ErrorCode.NONE in codes:
                broker.fail(f"generation {at} of {member.id} is accepted: {codes}")
            refused += len(codes)
    for member in (gone, stranger):
        codes = [member.leave(), member.ask_to_join().error_code]
        broker.expect(ErrorCode.NONE not in codes, f"{member.id}: LeaveGroup and JoinGroup are refused: {codes}")
    broker.expect(refused == 60, f"{refused} wrong requests are refused")
    for member in (leader, follower):
        broker.expect_error(member.heartbeat(generation), ErrorCode.NONE, what="Heartbeat in the right generation")
        broker.expect_equal("its assignment", bytes(member.sync().assignment), share_of(member))


@requirement(
    "GRP-31",
    notices="none seen: an earlier member is recognised by its id already",
    source="ClassicGroup.initNextGeneration; GroupMetadataManager.updateClassicGroupMember",
    sentence="A group that became empty keeps counting: who joins it next gets a later generation than all before, and a "
    "request from an earlier one is refused.",
    accepted="a generation above the last one; the first member's old id is unknown",
    tolerated="REBALANCE_IN_PROGRESS(27) for the generation before: clients join again on either",
)
def empty_groups_count_on(broker: Broker) -> None:
    group = Group(broker)
    (first,) = group.stable(1)
    broker.expect_error(first.leave(), ErrorCode.NONE, what="LeaveGroup")
    (second,) = group.stable(1)
    broker.expect(
        second.generation > first.generation, f"generation {second.generation} comes after {first.generation}"
    )
    broker.expect_error(first.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, what="Heartbeat of the member that left")
    code = second.heartbeat(first.generation)
    broker.expect_error(
        code, ErrorCode.ILLEGAL_GENERATION, tolerated=JOINS_AGAIN, what="Heartbeat in the former generation"
    )


@requirement(
    "GRP-32",
    notices="client: a member that came back counts twice, and the next rebalance waits for the lost one",
    source="GroupMetadataManager.updateMemberThenRebalanceOrCompleteJoin",
    sentence="A member that lost its connection while its join was held joins again with its id, on another one, and is "
    "answered there; it counts once.",
    accepted="one generation with two members, answered on the new connection",
)
def joined_on_another_connection(broker: Broker) -> None:
    group, leader, follower = stable_pair(broker)
    before = leader.generation
    leader.begin_join()
    group.await_rebalance(follower)
    leader.hang_up()
    leader.begin_join()
    broker.expect(leader.connection.is_silent(HELD_FOR_S), "the group waits for the follower")
    follower.begin_join()
    for member in (leader, follower):
        member.expect_joined()
    broker.expect_equal("the generations", [leader.generation, follower.generation], [before + 1] * 2)
    members = [one.member_id for one in group.leader_first([leader, follower])[0].answer.members]
    broker.expect_equal("the members", sorted(members), sorted([leader.id, follower.id]))
    group.synchronise([leader, follower])
