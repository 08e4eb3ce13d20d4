"""GRP: static members of a classic group. They have an instance id, and keep their assignment when they restart."""

from conformance.answers import AnswerParts
from conformance.broker import Broker
from conformance.classic_groups import JOINS_AGAIN, Group, Member, share_of
from conformance.committed_offsets import commit_one
from conformance.requirement import requirement
from conformance.steps import directly
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest

STATIC = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3}
"""API -> the first version with an instance id."""
SKIPS = 9
"""The first version of JoinGroup that can ask the leader to skip the assignment (KIP-814)."""


def static_pair(broker: Broker) -> tuple[Group, Member, Member]:
    """A stable group of two static members, the leader first."""
    group = Group(broker)
    one, other = group.member(instance_id="one"), group.member(instance_id="two")
    group.admit(one)
    group.admit(other, [one])
    group.synchronise([one, other])
    leader, follower = group.leader_first([one, other])
    return group, leader, follower


@requirement(
    "GRP-20",
    notices="client: each restart of a static member stops the whole group for a rebalance (KIP-345)",
    source="KIP-345; KAFKA-10284; GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin",
    sentence="A static member is admitted by its instance id alone. One that comes back with it and without a member id is "
    "given a new member id, its place and its assignment; no member joins again for it. The leader receives static members with "
    "their instance ids.",
    accepted="for a new one NONE(0) at once; for a follower: NONE(0), another member id, the same generation, the same bytes and "
    "no rebalance for the leader; each one's instance id in the leader's list of members",
    apis=STATIC,
)
def back_again(broker: Broker) -> None:
    with directly():
        alone = Group(broker).member(instance_id="one")
        broker.expect_error(alone.ask_to_join().error_code, ErrorCode.NONE, what="JoinGroup of a new one")
    _, leader, follower = static_pair(broker)
    reported = AnswerParts({one.member_id: one.group_instance_id for one in leader.answer.members})
    given = {one.id: one.instance_id for one in (leader, follower)}
    broker.expect_equal("the instance ids that the leader receives", reported, given)
    wanted = share_of(follower)
    for _ in range(2):
        again = follower.successor()
        answer = again.ask_to_join()
        broker.expect_error(answer.error_code, ErrorCode.NONE, what="JoinGroup")
        broker.expect(again.id not in ("", follower.id), f"{again.id} is not {follower.id}")
        broker.expect_equal("the generation", again.generation, follower.generation)
        broker.expect_equal("the leader that it receives", answer.leader, leader.id)
        synced = again.sync()
        broker.expect_error(synced.error_code, ErrorCode.NONE, what="SyncGroup")
        broker.expect_equal("the assignment", bytes(synced.assignment), wanted)
        broker.expect_error(again.heartbeat(), ErrorCode.NONE, what="its Heartbeat")
        broker.expect_error(leader.heartbeat(), ErrorCode.NONE, what="the leader's Heartbeat")
        follower = again


@requirement(
    "GRP-21",
    notices="data: two processes with one instance id read and commit the same partitions",
    source="KIP-345; ClassicGroup.validateMember",
    sentence="Once its instance id has come back as another member, a member that uses the old member id with that instance id "
    "is fenced: FENCED_INSTANCE_ID; an instance id that the group does not know is UNKNOWN_MEMBER_ID.",
    accepted="FENCED_INSTANCE_ID(82) for JoinGroup, SyncGroup, Heartbeat, OffsetCommit and LeaveGroup of the old one, "
    "UNKNOWN_MEMBER_ID(25) with an unknown instance id (since 3.0); the new one goes on",
    tolerated="the other of the two codes for LeaveGroup: who leaves looks at none; another refusal of an unknown instance id; "
    "REBALANCE_IN_PROGRESS(27) for the new one",
    apis=STATIC | {"OffsetCommit": 7, "LeaveGroup": 3},
)
def fenced_instances(broker: Broker) -> None:
    topic = broker.topic()
    group, _, old = static_pair(broker)
    new = old.successor()
    new.join()
    fenced, unknown = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID
    stranger = group.member(id=new.id, instance_id="nobody")
    stranger.generation = new.generation
    tries = ((old, fenced), (stranger, unknown)) if broker.is_kafka("3.0") else ((old, fenced),)
    for member, error in tries:
        reported = "the old member id" if member is old else "an unknown instance id"
        others = () if member is old else {*ErrorCode} - {ErrorCode.NONE}
        broker.expect_error(member.heartbeat(), error, tolerated=others, what=f"Heartbeat with {reported}")
        broker.expect_error(member.sync().error_code, error, tolerated=others, what=f"SyncGroup with {reported}")
        code = commit_one(
            broker,
            group.name,
            topic,
            5,
            generation=member.generation,
            member_id=member.id,
            instance_id=member.instance_id,
        )
        broker.expect_error(code, error, tolerated=others, what=f"OffsetCommit with {reported}")
        refused = {fenced, unknown}
        broker.expect_error(member.leave(), error, tolerated=refused, what=f"LeaveGroup with {reported}")
    broker.expect_error(old.ask_to_join().error_code, fenced, what="JoinGroup with the old member id")
    broker.expect_error(new.heartbeat(), ErrorCode.NONE, tolerated=JOINS_AGAIN, what="Heartbeat of the new member")


@requirement(
    "GRP-39",
    notices="tool: Java's Admin.removeMembersFromConsumerGroup and kafka-streams-application-reset --force do this",
    source="KIP-345; GroupMetadataManager.classicGroupLeaveToClassicGroup",
    sentence="LeaveGroup v3 and later removes a static member by its instance id alone, as an administrator does; with another "
    "member id than the one that it has it is fenced.",
    accepted="NONE(0) with the instance id and no member id, UNKNOWN_MEMBER_ID(25) for an unknown instance id, "
    "FENCED_INSTANCE_ID(82) for a wrong member id; the other one joins again",
    apis=STATIC | {"LeaveGroup": 3},
)
def removed_by_instance_id(broker: Broker) -> None:
    identity = LeaveGroupRequest.MemberIdentity
    lowest, highest = broker.versions_of(LeaveGroupRequest)
    for version in range(max(lowest, 3), highest + 1):
        with broker.case(f"v{version}"):
            group, leader, follower = static_pair(broker)
            wrong = identity(member_id="nobody", group_instance_id=follower.instance_id)
            unknown = identity(member_id="", group_instance_id="three")
            right = identity(member_id="", group_instance_id=follower.instance_id)
            answer = group.leave(wrong, unknown, version=version)
            codes = [one.error_code for one in answer.members]
            broker.expect_equal("the errors", codes, [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID])
            broker.expect_error(leader.heartbeat(), ErrorCode.NONE, what="Heartbeat while no member has left")
            answer = group.leave(right, version=version)
            reported = [(one.group_instance_id, one.error_code) for one in answer.members]
            broker.expect_equal("the result", reported, [(follower.instance_id, 0)])
            broker.expect_error(
                follower.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, what="Heartbeat of the removed member"
            )
            broker.expect_error(
                leader.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, what="Heartbeat of the other member"
            )


@requirement(
    "GRP-40",
    notices="client: Java's static leader assigns again after each restart, or no member does (KIP-814)",
    source="KIP-814; GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin",
    sentence="A static leader that comes back leads no new assignment: from v9 on it learns that it leads and is to skip the "
    "assignment, before it receives the old leader's id; either way it gets its assignment, and no member joins again.",
    accepted="v9: skip_assignment with itself as the leader and all members; before: another leader's id and no members; the "
    "same generation and bytes, no rebalance for the follower",
    apis=STATIC,
)
def leader_back_again(broker: Broker) -> None:
    first, last = broker.versions_of(JoinGroupRequest)
    for version in range(max(first, 5), last + 1):
        with broker.case(f"v{version}"):
            _, leader, follower = static_pair(broker)
            again = leader.successor(version)
            answer = again.ask_to_join()
            broker.expect_error(answer.error_code, ErrorCode.NONE, what="JoinGroup")
            broker.expect_equal("the generation", again.generation, leader.generation)
            broker.expect_equal("whether it learns that it leads", again.leads, version >= SKIPS)
            broker.expect_equal("whether it is to skip the assignment", answer.skip_assignment, version >= SKIPS)
            reported = {one.group_instance_id for one in answer.members}
            broker.expect_equal("the members reported", reported, {"one", "two"} if version >= SKIPS else set())
            synced = again.sync()
            broker.expect_error(synced.error_code, ErrorCode.NONE, what="SyncGroup")
            broker.expect_equal("the assignment", bytes(synced.assignment), share_of(leader))
            broker.expect_error(follower.heartbeat(), ErrorCode.NONE, what="the follower's Heartbeat")


@requirement(
    "GRP-41",
    notices="client: a rolling restart stops the whole group once for each member (KIP-345)",
    source="KIP-345 (rolling bounce)",
    sentence="When all static members of a group start again, one after the other, nothing is rebalanced: each has its old "
    "assignment, in the old generation.",
    accepted="of three members each gets the bytes of who had its instance id before, in the generation of before",
    apis=STATIC,
)
def all_start_again(broker: Broker) -> None:
    group = Group(broker)
    members: list[Member] = []
    for number in range(3):
        members.append(group.member(instance_id=f"instance {number}"))
        group.admit(members[-1], members[:-1])
    group.synchronise(members)
    wanted = {one.instance_id: share_of(one) for one in members}
    generation = members[0].generation
    for old in members:
        old.hang_up()
        new = old.successor()
        new.join()
        broker.expect_equal("the generation", new.generation, generation)
        answer = new.sync()
        broker.expect_error(answer.error_code, ErrorCode.NONE, what="SyncGroup")
        broker.expect_equal(f"the assignment of {old.instance_id}", bytes(answer.assignment), wanted[old.instance_id])
        broker.expect_error(new.heartbeat(), ErrorCode.NONE, what="Heartbeat")


@requirement(
    "GRP-42",
    notices="client: the process that was replaced waits for its request timeout before it learns of it",
    source="KIP-345; ClassicGroup.replaceStaticMember",
    sentence="A static member whose request is held when its instance id joins as another member is answered at once: it is "
    "fenced.",
    accepted="FENCED_INSTANCE_ID(82) for a held JoinGroup and a held SyncGroup",
    tolerated="REBALANCE_IN_PROGRESS(27) for its Heartbeat before the leader synchronised (GRP-14)",
    apis=STATIC,
)
def fenced_while_held(broker: Broker) -> None:
    with broker.case("a held JoinGroup"):
        group, leader, follower = static_pair(broker)
        leader.begin_join()
        group.await_rebalance(follower)
        new = leader.successor()
        new.begin_join()
        broker.expect_error(leader.joined().error_code, ErrorCode.FENCED_INSTANCE_ID)
    with broker.case("a held SyncGroup"):
        group = Group(broker)
        one, other = group.member(instance_id="one"), group.member(instance_id="two")
        group.admit(one)
        group.admit(other, [one])
        _, follower = group.leader_first([one, other])
        follower.begin_sync()
        wanted = ErrorCode.NONE if broker.is_kafka("2.6.1") else ErrorCode.REBALANCE_IN_PROGRESS  # KAFKA-10134
        broker.expect_error(follower.heartbeat(), wanted, tolerated=JOINS_AGAIN, what="its Heartbeat")
        follower.successor().begin_join()
        broker.expect_error(follower.synced().error_code, ErrorCode.FENCED_INSTANCE_ID)


@requirement(
    "GRP-43",
    since="2.8",
    notices="client: a static member that was upgraded gets bytes of a protocol that it does not have any more",
    source="KIP-345; KAFKA-10284; GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin",
    sentence="A static member that comes back with other protocols than before, so that another one is chosen, makes all join "
    "again.",
    accepted="REBALANCE_IN_PROGRESS(27) for the other member, and the next generation with the protocol that both support",
    apis=STATIC,
)
def back_with_other_protocols(broker: Broker) -> None:
    group = Group(broker)
    both = {"range": Member(group).protocols["range"], "sticky": Member(group).protocols["range"]}
    one, other = (group.member(instance_id=name, protocols=both) for name in ("one", "two"))
    group.admit(one)
    group.admit(other, [one])
    group.synchronise([one, other])
    leader, follower = group.leader_first([one, other])
    broker.expect_equal("the protocol", leader.answer.protocol_name, "range")
    again = follower.successor()
    again.protocols = {"sticky": both["sticky"]}
    again.begin_join()
    group.await_rebalance(leader)
    leader.begin_join()
    for member in (again, leader):
        member.expect_joined()
        broker.expect_equal("the protocol afterwards", member.answer.protocol_name, "sticky")
    broker.expect_equal("the generation", again.generation, follower.generation + 1)
