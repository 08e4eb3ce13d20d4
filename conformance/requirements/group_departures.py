"""GRP: members that leave a classic group, and members that are removed because they are silent."""

import time

from conformance.broker import Broker
from conformance.classic_groups import FIRST_LEAVE_OF_SEVERAL, JOINS_AGAIN, Group, Member
from conformance.committed_offsets import commit_one
from conformance.requirement import requirement
from conformance.requirements.group_generations import HELD_FOR_S, joined_pair, stable_pair
from conformance.wire import NoAnswer
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.leave_group import LeaveGroupRequest

WITH_REBALANCE_TIMEOUT = 1
"""The first version of JoinGroup with a rebalance timeout."""
SHORT_SESSIONS = {"group.min.session.timeout.ms": "1000"}
"""A setting that allows sessions of `SHORT_MS`; by default the smallest session timeout is six seconds."""
SHORT_MS = 4_000
EARLY_MS = 100
"""A timer may expire earlier by this time."""
LOOKED_AT_S = (9, 20, 36)
"""When to look whether a member with a session timeout of 6 s that says nothing is gone: some brokers look each half minute."""
GONE_WITHIN_S = 40.0
"""The time within which a member that is silent for `SHORT_MS` must be removed, on a busy machine."""


def await_gone(broker: Broker, witness: Member, what: str) -> None:
    """Wait until the broker asks a remaining member to join again."""
    broker.eventually(
        lambda: witness.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, what, within_s=GONE_WITHIN_S, every_s=0.1
    )


@requirement(
    "GRP-17",
    notices="stuck: no client reads the partitions of a member that died",
    source="session.timeout.ms; GroupMetadataManager.expireClassicGroupMemberHeartbeat",
    sentence="A member that is silent for its session timeout is removed and the others join again; not earlier.",
    accepted="with 4 seconds: REBALANCE_IN_PROGRESS(27) for the other member, not before; then a generation without the silent "
    "one, whose every request is UNKNOWN_MEMBER_ID(25)",
    tolerated="that it gets in again by its JoinGroup, as in GRP-04",
    configs=SHORT_SESSIONS,
    deadline_s=90,
)
def silent_members(broker: Broker) -> None:
    group = Group(broker)
    silent, other = group.member(session_timeout_ms=SHORT_MS), group.member()
    group.admit(other)
    group.admit(silent, [other])
    group.synchronise([silent, other])
    began = time.monotonic()
    silent.expect(silent.heartbeat(), "Heartbeat")
    await_gone(broker, other, "the silent member is removed")
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect(
        waited_ms >= SHORT_MS - EARLY_MS,
        f"the member is removed after {waited_ms:.0f} ms, and not before its session timeout is over",
    )
    other.join()
    broker.expect_equal("the members", [one.member_id for one in other.answer.members], [other.id])
    for at in (silent.generation, other.generation):
        broker.expect_error(silent.heartbeat(at), ErrorCode.UNKNOWN_MEMBER_ID, what="Heartbeat of the silent member")
    code = silent.ask_to_join().error_code
    broker.expect_error(code, ErrorCode.UNKNOWN_MEMBER_ID, tolerated={ErrorCode.NONE}, what="its JoinGroup")


@requirement(
    "GRP-18",
    notices="stuck: one member that hangs keeps the whole group from reading",
    source="KIP-62; GroupMetadataManager.completeClassicGroupJoin",
    sentence="A member that does not join again within the rebalance timeout is dropped, however alive it is, and the others "
    "go on without it.",
    accepted="with 4 seconds: the one that joined again is answered, not before, and is alone; the other one is unknown; with 0 "
    "and -1 ms no member is waited for (since 3.0, KAFKA-12890)",
    tolerated="ILLEGAL_GENERATION(22) for the other one: it joins again on either; 0 and -1 ms, which no client says, that are "
    "not heeded",
    apis={"JoinGroup": WITH_REBALANCE_TIMEOUT},
    deadline_s=90,
)
def late_for_the_rebalance(broker: Broker) -> None:
    group = Group(broker)
    leader, late = group.stable(2, rebalance_timeout_ms=SHORT_MS)
    began = time.monotonic()
    leader.begin_join()
    group.await_rebalance(late)
    answer = leader.expect_joined()
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect(
        waited_ms >= SHORT_MS - EARLY_MS,
        f"JoinGroup is answered after {waited_ms:.0f} ms, and not before the timeout is over",
    )
    broker.expect_equal("the members", [one.member_id for one in answer.members], [leader.id])
    again = {ErrorCode.ILLEGAL_GENERATION}
    broker.expect_error(
        late.heartbeat(),
        ErrorCode.UNKNOWN_MEMBER_ID,
        tolerated=again,
        what="Heartbeat of the member that did not join again",
    )
    group.synchronise([leader])
    for timeout_ms in (0, -1) if broker.is_kafka("3.0") else ():
        member = Group(broker).member(rebalance_timeout_ms=timeout_ms)
        member.join()
        removed = f"with {timeout_ms} ms a member that has joined and does not synchronise is unknown"
        try:
            broker.eventually(lambda member=member: member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, removed)
        except NoAnswer as kept:
            if member.heartbeat() != ErrorCode.NONE:
                raise
            broker.tolerate(f"{kept}; GRP-38 speaks of members that do not synchronise")


@requirement(
    "GRP-19",
    notices="client: partitions of a member that left wait for its session timeout, 45 s in Java",
    source="KIP-345; GroupMetadataManager.classicGroupLeaveToClassicGroup",
    sentence="LeaveGroup removes a member and makes the others join again; an unknown member is UNKNOWN_MEMBER_ID. From v3 on "
    "it names several members, each with its own result.",
    accepted="the remaining one sees REBALANCE_IN_PROGRESS(27); of several NONE(0) for members and UNKNOWN_MEMBER_ID(25) for "
    "others, in the order of the request, in every version",
)
def leaving(broker: Broker) -> None:
    lowest, highest = broker.versions_of(LeaveGroupRequest)
    for version in range(lowest, highest + 1):
        with broker.case(f"v{version}"):
            group = Group(broker)
            one, other, third = group.stable(3)
            if version < FIRST_LEAVE_OF_SEVERAL:
                for id, error in ((other.id, ErrorCode.NONE), ("nobody", ErrorCode.UNKNOWN_MEMBER_ID)):
                    answer = group.call(LeaveGroupRequest(group_id=group.name, member_id=id), version)
                    broker.expect_error(answer.error_code, error, what=f"LeaveGroup of {id}")
                remaining = [one, third]
            else:
                identity = LeaveGroupRequest.MemberIdentity
                answer = group.leave(other.identity(), identity(member_id="nobody"), third.identity(), version=version)
                broker.expect_error(answer.error_code, ErrorCode.NONE, what="LeaveGroup of several")
                found = [(each.member_id, each.error_code) for each in answer.members]
                wanted = [(other.id, 0), ("nobody", int(ErrorCode.UNKNOWN_MEMBER_ID)), (third.id, 0)]
                broker.expect_equal("the results", found, wanted)
                remaining = [one]
            broker.expect_error(
                other.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, what="Heartbeat of the member that left"
            )
            broker.expect_error(
                one.heartbeat(), ErrorCode.REBALANCE_IN_PROGRESS, what="Heartbeat of a member that remains"
            )
            group.rejoin(remaining)
            group.synchronise(remaining)


@requirement(
    "GRP-33",
    notices="client: the others wait for a member that is gone until the rebalance timeout, 5 minutes in Java",
    source="GroupMetadataManager.classicGroupLeaveToClassicGroup; documentation, group membership protocol",
    sentence="A member that leaves while the others have joined again and are held lets them go on: its place is not waited "
    "for.",
    accepted="the join of the two others is answered, with two members, once the third leaves",
)
def leaving_while_joining(broker: Broker) -> None:
    group = Group(broker)
    leader, follower, third = group.stable(3)
    leader.begin_join()
    group.await_rebalance(third)
    follower.begin_join()
    broker.expect(leader.connection.is_silent(HELD_FOR_S), "the group waits for the third")
    broker.expect_error(third.leave(), ErrorCode.NONE, what="LeaveGroup")
    for member in (leader, follower):
        member.expect_joined()
    reported = group.leader_first([leader, follower])[0].answer.members
    broker.expect_equal("the members", {one.member_id for one in reported}, {leader.id, follower.id})
    group.synchronise([leader, follower])


@requirement(
    "GRP-34",
    notices="stuck: a client that was stopped while it joined holds the whole group up",
    source="KIP-394; GroupMetadataManager.addPendingMemberThenRebalanceOrCompleteJoin, expireClassicGroupMemberHeartbeat",
    sentence="A client that was given a member id and does not come back is no member: it does not hold the others up for longer "
    "than its session timeout, and its id is forgotten then.",
    accepted="with 4 seconds: the others' join is answered without it, within half a minute for slow machines; its id is "
    "UNKNOWN_MEMBER_ID(25)",
    tolerated="that it gets in by a JoinGroup with the forgotten id, as in GRP-04",
    configs=SHORT_SESSIONS,
    apis={"JoinGroup": 4},
    deadline_s=90,
)
def never_came_back(broker: Broker) -> None:
    group, leader, follower = stable_pair(broker)
    lost = group.member(session_timeout_ms=SHORT_MS)
    lost.identify()
    skip_without_ids(broker, lost)
    forgotten_s = time.monotonic() + 2 * SHORT_MS / 1000
    leader.begin_join()
    group.await_rebalance(follower)
    follower.begin_join()
    for member in (leader, follower):
        member.expect_joined()
    reported = group.leader_first([leader, follower])[0].answer.members
    broker.expect_equal("the members", {one.member_id for one in reported}, {leader.id, follower.id})
    group.synchronise([leader, follower])
    broker.eventually(
        lambda: lost.heartbeat(leader.generation) == ErrorCode.UNKNOWN_MEMBER_ID,
        "the id is forgotten",
        within_s=GONE_WITHIN_S,
    )
    time.sleep(max(0.0, forgotten_s - time.monotonic()))  # Heartbeat may not know an id that has not joined
    expect_forgotten(broker, lost)


def skip_without_ids(broker: Broker, lost: Member) -> None:
    """Skip where the target gave no member id."""
    if not lost.id:
        broker.skip("needs member ids that are given out before a member joins, and the target admits members at once")


def expect_forgotten(broker: Broker, lost: Member) -> None:
    """Expect that the id of a client that never joined is unknown. Tolerates that it gets in: GRP-04 speaks of unknown ids."""
    code = lost.ask_to_join().error_code
    broker.expect_error(code, ErrorCode.UNKNOWN_MEMBER_ID, tolerated={ErrorCode.NONE}, what="JoinGroup with its id")


@requirement(
    "GRP-50",
    notices="client: each client that is stopped while it joins stops the whole group for a rebalance",
    source="KIP-394; GroupMetadataManager.removePendingMemberAndUpdateClassicGroup",
    sentence="A member id that was given out and expires unused makes no stable group rebalance.",
    accepted="with 4 seconds: NONE(0) for each Heartbeat of both members for twice as long, and the same assignments; the id is "
    "UNKNOWN_MEMBER_ID(25) afterwards",
    tolerated="that a client gets in by a JoinGroup with the id afterwards, as in GRP-04",
    configs=SHORT_SESSIONS,
    apis={"JoinGroup": 4},
    deadline_s=60,
)
def unused_ids(broker: Broker) -> None:
    group, leader, follower = stable_pair(broker)
    before = [bytes(member.sync().assignment) for member in (leader, follower)]
    lost = group.member(session_timeout_ms=SHORT_MS)
    lost.identify()
    skip_without_ids(broker, lost)
    until = time.monotonic() + 2 * SHORT_MS / 1000
    while time.monotonic() < until:
        for member in (leader, follower):
            broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="Heartbeat")
        time.sleep(HELD_FOR_S)
    after = [bytes(member.sync().assignment) for member in (leader, follower)]
    broker.expect_equal("the assignments", after, before)
    expect_forgotten(broker, lost)


@requirement(
    "GRP-35",
    notices="client: each lost connection stops the whole group for a rebalance",
    source="documentation, group membership protocol; GroupMetadataManager",
    sentence="A closed connection is no leave: the member stays, no member joins again for it, and it goes on from another "
    "connection.",
    accepted="after all connections of a member are closed: NONE(0) for both members' heartbeats and the same assignment",
)
def closed_connections(broker: Broker) -> None:
    group, leader, follower = stable_pair(broker)
    follower.expect(follower.heartbeat(), "Heartbeat")
    follower.hang_up()
    broker.hang_up([group.address])
    for _ in range(5):
        for member in (leader, follower):
            broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="Heartbeat")
        time.sleep(HELD_FOR_S / 5)
    answer = follower.sync()
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="SyncGroup on another connection")
    broker.expect(bool(answer.assignment), f"the assignment has {len(answer.assignment)} bytes")


@requirement(
    "GRP-36",
    notices="client: a member that commits and is late with its heartbeat is put out",
    source="OffsetMetadataManager.validateOffsetCommit; GroupMetadataManager.rescheduleClassicGroupMemberHeartbeat",
    sentence="A member's OffsetCommit keeps it in the group as a heartbeat does.",
    accepted="a member with a session timeout of 6 seconds that commits every half second and never beats is a member after 9 "
    "seconds, when one that says nothing is gone, and is removed once it is silent",
    deadline_s=90,
)
def commits_keep_alive(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker)
    silent = [member for _ in LOOKED_AT_S for member in Group(broker).stable(1, session_timeout_ms=6_000)]
    (member,) = group.stable(1, session_timeout_ms=6_000)
    began = said = time.monotonic()
    while silent:
        silent_s, said = time.monotonic() - said, time.monotonic()
        code = commit_one(broker, group.name, topic, 1, generation=member.generation, member_id=member.id)
        if code == ErrorCode.UNKNOWN_MEMBER_ID and silent_s > 5:
            broker.skip(f"this machine was too slow: the member said nothing for {silent_s:.1f} s")
        broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit")
        if said - began >= LOOKED_AT_S[-len(silent)] and silent.pop().heartbeat() != ErrorCode.NONE:
            break
        time.sleep(0.5)
    else:
        broker.skip(f"who says nothing is a member for {LOOKED_AT_S[-1]} s, too")
    broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="the first Heartbeat, when a silent member is gone")
    other = group.member()
    broker.eventually(  # a broker may answer a join while the silent member still counts
        lambda: [one.member_id for one in other.join().members] == [other.id], "the next member is alone", within_s=30
    )


@requirement(
    "GRP-37",
    notices="stuck: members are put out while they wait for others, and big groups never become stable",
    source="ClassicGroupMember.hasSatisfiedHeartbeat; GroupMetadataManager.expireClassicGroupMemberHeartbeat",
    sentence="A member that waits for the answer to its JoinGroup cannot beat, and is not taken for silent meanwhile.",
    accepted="a leader with a session timeout of 4 seconds that waits 8 seconds for the follower to join is in the next "
    "generation, and stays in it",
    tolerated="REBALANCE_IN_PROGRESS(27) for its Heartbeat before the leader synchronised (GRP-14)",
    configs=SHORT_SESSIONS,
    deadline_s=90,
)
def waiting_is_not_silence(broker: Broker) -> None:
    group = Group(broker)
    waiting, other = group.member(session_timeout_ms=SHORT_MS), group.member()
    group.admit(waiting)
    group.admit(other, [waiting])
    group.synchronise([waiting, other])
    if waiting.leads:
        waiting.begin_join()
        group.await_rebalance(other)
    else:
        other.protocols["more"] = other.protocols["range"]
        waiting.protocols["more"] = waiting.protocols["range"]
        waiting.begin_join()
        group.await_rebalance(other)
    broker.expect(waiting.connection.is_silent(2 * SHORT_MS / 1000), "its JoinGroup is held for two session timeouts")
    other.begin_join()
    for member in (other, waiting):
        member.expect_joined()
    reported = group.leader_first([waiting, other])[0].answer.members
    broker.expect_equal("the members", {one.member_id for one in reported}, {waiting.id, other.id})
    wanted = ErrorCode.NONE if broker.is_kafka("2.6.1") else ErrorCode.REBALANCE_IN_PROGRESS  # KAFKA-10134
    broker.expect_error(waiting.heartbeat(), wanted, tolerated=JOINS_AGAIN, what="its Heartbeat")


@requirement(
    "GRP-38",
    notices="client: followers wait for a leader that hangs, until their own request timeout (KAFKA-9752)",
    source="GroupMetadataManager.expirePendingSync (KAFKA-9752)",
    sentence="A leader that never sends its assignment holds the others up for the rebalance timeout only: then it is removed, "
    "and they join again.",
    accepted="with 4 seconds: the follower's held SyncGroup is answered with REBALANCE_IN_PROGRESS(27), not before; the leader "
    "is unknown, the follower leads the next generation",
    since="3.0",
    apis={"JoinGroup": WITH_REBALANCE_TIMEOUT},
    deadline_s=90,
)
def the_leader_says_nothing(broker: Broker) -> None:
    began = time.monotonic()
    group, leader, follower = joined_pair(broker, rebalance_timeout_ms=SHORT_MS)
    follower.begin_sync()
    answer = follower.synced()
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect_error(answer.error_code, ErrorCode.REBALANCE_IN_PROGRESS, what="the follower's SyncGroup")
    broker.expect(
        waited_ms >= SHORT_MS - EARLY_MS,
        f"SyncGroup is answered after {waited_ms:.0f} ms, and not before the timeout is over",
    )
    broker.expect_error(leader.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID, what="Heartbeat of the leader")
    follower.join()
    broker.expect_equal("who leads", follower.leads, True)
    group.synchronise([follower])


@requirement(
    "GRP-48",
    notices="client: the others wait for a member of an old client, which has no rebalance timeout, much longer",
    source="KIP-62; JoinGroupRequest schema (rebalanceTimeoutMs, v1)",
    sentence="A member of JoinGroup v0, which has no rebalance timeout, is waited for as long as its session timeout.",
    accepted="with a session timeout of 4 seconds: the other member, which joined again, is answered without it, not before, "
    "although the one of v0 beats",
    configs=SHORT_SESSIONS,
    deadline_s=90,
)
def old_members_are_waited_for(broker: Broker) -> None:
    group = Group(broker)
    leader = group.member(version=0, session_timeout_ms=SHORT_MS)
    late = group.member(version=0, session_timeout_ms=SHORT_MS)
    group.admit(leader)
    group.admit(late, [leader])
    group.synchronise([leader, late])
    leader, late = group.leader_first([leader, late])
    began = time.monotonic()
    leader.begin_join()
    group.await_rebalance(late)
    while leader.connection.is_silent(HELD_FOR_S) and time.monotonic() < began + GONE_WITHIN_S:
        late.heartbeat()
    answer = leader.expect_joined()
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect(
        waited_ms >= SHORT_MS - EARLY_MS,
        f"JoinGroup is answered after {waited_ms:.0f} ms, and not before the timeout is over",
    )
    broker.expect_equal("the members", [one.member_id for one in answer.members], [leader.id])
