"""GRP: joining a classic group: which members are admitted, which one leads, and the protocol that the group selects."""

import time

from conformance.answers import AnswerParts
from conformance.broker import Broker
from conformance.classic_groups import FIRST_WITH_IDENTITY, Group, Member, subscription
from conformance.requirement import requirement
from conformance.steps import directly
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.join_group import JoinGroupRequest

SHORTEST_SESSION_MS, LONGEST_SESSION_MS = 6_000, 1_800_000
"""Defaults of group.min.session.timeout.ms and group.max.session.timeout.ms."""
INITIAL_DELAY_MS = 3_000
ATTEMPTS = 3
MAX_SIZE = 2
SMALL_GROUPS = {"group.max.size": str(MAX_SIZE), "group.consumer.max.size": str(MAX_SIZE)}
"""A setting for both group protocols, so that requirements of both share one start of the target; others need larger groups."""


def join_versions(broker: Broker, lowest: int = 0) -> range:
    """The versions of JoinGroup that both sides support, from `lowest` on."""
    first, last = broker.versions_of(JoinGroupRequest)
    return range(max(first, lowest), last + 1)


@requirement(
    "GRP-01",
    notices="client: Java sends group.id= as it is, and reports this code to its user",
    source="GroupCoordinatorService.joinGroup, isGroupIdNotEmpty",
    sentence="JoinGroup, SyncGroup, Heartbeat and LeaveGroup for the empty group id are refused with INVALID_GROUP_ID.",
    accepted="INVALID_GROUP_ID(24), in every version of JoinGroup; before 2.0 (KAFKA-6773) UNKNOWN_MEMBER_ID(25) of the others",
)
def empty_group_id(broker: Broker) -> None:
    group = Group(broker)
    group.name = ""
    for version in join_versions(broker):
        answer = group.member(version=version).ask_to_join()
        broker.expect_error(answer.error_code, ErrorCode.INVALID_GROUP_ID, what=f"JoinGroup v{version}")
    member = group.member(id="somebody")
    wanted = ErrorCode.INVALID_GROUP_ID if broker.is_kafka("2.0") else ErrorCode.UNKNOWN_MEMBER_ID
    broker.expect_error(member.sync(generation=1).error_code, wanted, what="SyncGroup")
    broker.expect_error(member.heartbeat(1), wanted, what="Heartbeat")
    broker.expect_error(member.leave(), wanted, what="LeaveGroup")


@requirement(
    "GRP-02",
    notices="operator: members whose session lasts a day keep their partitions for a day after they died",
    source="group.min.session.timeout.ms, group.max.session.timeout.ms; GroupCoordinatorService.joinGroup",
    sentence="A session timeout outside of the configured bounds (6 seconds to 30 minutes) is refused with "
    "INVALID_SESSION_TIMEOUT; the bounds themselves are taken.",
    accepted="INVALID_SESSION_TIMEOUT(26) for -1, 0, 5999, 1800001 and 2147483647 ms; 6000 and 1800000 ms are admitted",
    configs={
        "group.min.session.timeout.ms": str(SHORTEST_SESSION_MS),
        "group.max.session.timeout.ms": str(LONGEST_SESSION_MS),
    },
)
def session_timeouts(broker: Broker) -> None:
    group = Group(broker)
    for timeout_ms in (-1, 0, SHORTEST_SESSION_MS - 1, LONGEST_SESSION_MS + 1, 2**31 - 1):
        answer = group.member(session_timeout_ms=timeout_ms).ask_to_join()
        broker.expect_error(answer.error_code, ErrorCode.INVALID_SESSION_TIMEOUT, what=f"{timeout_ms} ms")
    for timeout_ms in (SHORTEST_SESSION_MS, LONGEST_SESSION_MS):
        answer = Group(broker).member(session_timeout_ms=timeout_ms).join()
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"{timeout_ms} ms")


@requirement(
    "GRP-03",
    notices="operator: joins that clients give up leave members behind, for which each rebalance waits (KIP-394)",
    source="KIP-394; GroupMetadataManager.classicGroupJoinNewDynamicMember",
    sentence="From v4 on, a join without a member id is answered with MEMBER_ID_REQUIRED and an id of its own, with which the "
    "next join is admitted; before, it is admitted at once.",
    accepted="v4 and later: MEMBER_ID_REQUIRED(79), an id, no generation, and NONE(0) with that id; before: NONE(0) and an id; "
    "ten ids are ten different ones",
)
def member_ids(broker: Broker) -> None:
    ids: set[str] = set()
    for version in join_versions(broker):
        with broker.case(f"v{version}"):
            member = Group(broker).member(version=version)
            if version >= FIRST_WITH_IDENTITY:
                first = member.ask_to_join()
                broker.expect_error(first.error_code, ErrorCode.MEMBER_ID_REQUIRED, what="without a member id")
                broker.expect(bool(first.member_id), f"the id {first.member_id!r} is given by the first response")
                broker.expect_equal("the generation", first.generation_id, -1)
            given = member.id
            answer = member.ask_to_join()
            broker.expect_error(answer.error_code, ErrorCode.NONE, what="JoinGroup that must be admitted")
            broker.expect(bool(answer.member_id), f"a member id is assigned: {answer.member_id!r}")
            broker.expect(given in ("", answer.member_id), "the member id is the one from the first response")
            broker.expect_equal("the leader", answer.leader, answer.member_id)
            broker.expect(answer.member_id not in ids, "no other member has this id")
            ids.add(answer.member_id)


@requirement(
    "GRP-49",
    notices="stuck: librdkafka's members (all rdkafka) and Java's first in a process (consumer-GROUP-1) remove each other",
    source="ConsumerConfig.maybeOverrideClientId; ClassicGroup.generateMemberId",
    sentence="Members that share a client id are different members: each has a member id of its own, and none is put out when "
    "another one joins.",
    accepted="NONE(0) or REBALANCE_IN_PROGRESS(27) for the first one's Heartbeat; two member ids in one generation",
)
def shared_client_ids(broker: Broker) -> None:
    group = Group(broker)
    (first,) = group.stable(1, client_id="shared")
    second = group.member(client_id="shared")
    second.identify()
    goes_on = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
    broker.expect_error(first.heartbeat(), *goes_on, what="the first one's Heartbeat when the second has asked")
    second.begin_join()
    group.await_rebalance(first)
    first.begin_join()
    for member in (first, second):
        broker.expect_error(member.joined().error_code, ErrorCode.NONE, what="JoinGroup")
    broker.expect(first.id != second.id, f"{first.id} and {second.id} are two member ids")
    broker.expect_equal("the generation of the second", second.generation, first.generation)
    group.synchronise([first, second])
    for member in (first, second):
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="Heartbeat")


@requirement(
    "GRP-04",
    notices="stuck: Java and librdkafka forget their id on this code and join again; on others they give up or never get in",
    source="GroupMetadataManager.classicGroupJoin, classicGroupSync, classicGroupHeartbeat",
    sentence="A client that gives a member id that the group does not know is refused with UNKNOWN_MEMBER_ID, in a group that "
    "no member has used as in one with members, also with an id of another group's member.",
    accepted="UNKNOWN_MEMBER_ID(25) for JoinGroup, SyncGroup and Heartbeat; the member that is there is not disturbed",
    tolerated="a JoinGroup to a group without members that makes the client a member: it gets in at once; "
    "REBALANCE_IN_PROGRESS(27) for SyncGroup and Heartbeat: clients join again on either",
)
def unknown_members(broker: Broker) -> None:
    admits = _admits_unknown_ids(broker)
    (stranger,) = Group(broker).stable(1)
    used, unused = Group(broker), Group(broker)
    (member,) = used.stable(1)
    for group in (unused, used):
        for id in ("nobody", stranger.id):
            member.heartbeat()  # some hold what follows for most of its session
            reported = (
                f"{'an unused' if group is unused else 'a used'} group, {'another member' if id != 'nobody' else id}"
            )
            other = group.member(id=id)
            if not admits:
                broker.expect_error(
                    other.ask_to_join().error_code, ErrorCode.UNKNOWN_MEMBER_ID, what=f"JoinGroup, {reported}"
                )
            synced = other.sync(generation=member.generation)
            for api, code in (("SyncGroup", synced.error_code), ("Heartbeat", other.heartbeat(member.generation))):
                broker.expect_error(
                    code,
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    tolerated={ErrorCode.REBALANCE_IN_PROGRESS},
                    what=f"{api}, {reported}",
                )
    broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="the member that is there")


def _admits_unknown_ids(broker: Broker) -> bool:
    """Whether a client with an unknown member id becomes the member of a group that has none: that is tolerated."""
    group = Group(broker)
    client = group.member(id="nobody")
    if client.ask_to_join().error_code != ErrorCode.NONE:
        return False
    group.synchronise([client])
    broker.expect_error(client.heartbeat(), ErrorCode.NONE, what="Heartbeat of a client that got in with an unknown id")
    broker.tolerate("JoinGroup, an unused group, nobody: NONE(0), and the client is a member")
    return True


@requirement(
    "GRP-05",
    notices="misread: members get metadata and assignments of another protocol, or one that they do not have",
    source="ClassicGroup.supportsProtocols; GroupMetadataManager.classicGroupJoin",
    sentence="A join with another protocol type than the group's, with no protocol that all members support, with no protocol "
    "at all or with an empty protocol type is refused with INCONSISTENT_GROUP_PROTOCOL.",
    accepted="INCONSISTENT_GROUP_PROTOCOL(23) in each case, also for the first member where it is about no protocol or no type "
    "(since 1.0, KAFKA-6005)",
    tolerated="that a group's first member names no type or no protocol, and gets in: no client says so; that the member that is "
    "there is asked to join again",
)
def inconsistent_protocols(broker: Broker) -> None:
    group = Group(broker)
    (member,) = group.stable(1, protocols={"range": subscription(), "sticky": subscription()})
    wrong: dict[str, Member] = {
        "another protocol type": group.member(protocol_type="connect"),
        "no common protocol": group.member(protocols={"roundrobin": subscription()}),
        "an empty protocol type": group.member(protocol_type=""),
        "the first with an empty protocol type": Group(broker).member(protocol_type=""),
    }
    bare, first_bare = group.member(), Group(broker).member()
    bare.protocols, first_bare.protocols = {}, {}
    wrong |= {"no protocol": bare, "the first without a protocol": first_bare}
    if not broker.is_kafka("1.0"):
        wrong = {reported: other for reported, other in wrong.items() if "the first" not in reported}
    for reported, other in wrong.items():
        answer = other.ask_to_join()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = other.ask_to_join()
        admitted = {ErrorCode.NONE} if "the first" in reported else ()
        broker.expect_error(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, tolerated=admitted, what=reported)
    asked = {ErrorCode.REBALANCE_IN_PROGRESS}
    broker.expect_error(member.heartbeat(), ErrorCode.NONE, tolerated=asked, what="the member that is there")


@requirement(
    "GRP-06",
    notices="stuck: the leader of every client assigns from this list; a second leader assigns the same partitions",
    source="GroupMetadataManager.completeClassicGroupJoin; JoinGroupResponse schema",
    sentence="One member is the leader and receives all members with their metadata for the chosen protocol; the others "
    "receive the leader's id and no members.",
    accepted="of three members one gets three entries with each one's own bytes, the others none; all name the same leader",
    tolerated="followers that receive the members, too",
)
def one_leader(broker: Broker) -> None:
    group = Group(broker)
    members = [group.member(protocols={"range": subscription(user_data=b"of %d" % number)}) for number in range(3)]
    for number, member in enumerate(members):
        group.admit(member, members[:number])
    broker.expect_equal("the leaders named", len({one.answer.leader for one in members}), 1)
    leader, *followers = group.leader_first(members)
    broker.expect(leader.leads, f"{leader.id} leads")
    reported = AnswerParts({one.member_id: bytes(one.metadata) for one in leader.answer.members})
    broker.expect_equal("the members that the leader receives", len(leader.answer.members), len(members))
    broker.expect_equal("what the leader receives", reported, {one.id: one.protocols["range"] for one in members})
    if any(one.answer.members for one in followers):
        broker.tolerate("followers receive the members too")


@requirement(
    "GRP-07",
    notices="stuck: Java and librdkafka give up on a protocol that they did not offer",
    source="ClassicGroup.selectProtocol",
    sentence="The chosen protocol is one that all members support: of these the one that most members prefer.",
    accepted="with preferences (a, b, c), (c, b), (c, b, d) it is c; the same name is reported to all, and the metadata are "
    "those for it",
    tolerated="b: clients take each that they offered",
)
def chosen_protocol(broker: Broker) -> None:
    group = Group(broker)
    preferences = (("a", "b", "c"), ("c", "b"), ("c", "b", "d"))
    members = [
        group.member(protocols={name: subscription(user_data=name.encode()) for name in names}) for names in preferences
    ]
    for number, member in enumerate(members):
        group.admit(member, members[:number])
    chosen = members[0].answer.protocol_name if members[0].answer.protocol_name == "b" else "c"
    broker.expect_equal("the protocols reported", [one.answer.protocol_name for one in members], [chosen] * 3)
    if chosen != "c":
        broker.tolerate(f"{chosen!r} is chosen, which all support, and not 'c', which most prefer")
    leader = group.leader_first(members)[0]
    metadata = [bytes(one.metadata) for one in leader.answer.members]
    broker.expect_equal("the metadata", metadata, [subscription(user_data=chosen.encode())] * 3)
    if broker.version_for(JoinGroupRequest) >= 7:
        types = {one.answer.protocol_type for one in members}
        broker.expect_equal("the protocol types reported", types, {group.protocol_type})


@requirement(
    "GRP-08",
    notices="data: commits and heartbeats of an earlier assignment pass for those of the new one",
    source="ClassicGroup.initNextGeneration",
    sentence="Each completed join phase makes a generation: its number is one higher than that of the one before, and the same "
    "for all members, who are in it from then on.",
    accepted="1, 2, 3, 4 for four phases, with one, two, two and one member; no ILLEGAL_GENERATION(22) for a Heartbeat in it",
    tolerated="a count from another number than 1: clients compare generations, and begin below 0",
)
def generations(broker: Broker) -> None:
    group = Group(broker)
    one, other = group.member(), group.member()
    with directly():
        group.admit(one)
        first = one.generation
        if first != 1:
            broker.tolerate(f"the first generation is {first}")
        joined = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS  # GRP-14 judges which of the two
        broker.expect_error(one.heartbeat(), *joined, what="Heartbeat in it")
        seen = [first]
        group.admit(other, [one])
        broker.expect_equal("the generation of the first when the second has joined", one.generation, other.generation)
        seen.append(one.generation)
        broker.expect_equal("the first generations", seen, [first, first + 1])
        group.synchronise([one, other])
        group.rejoin(group.leader_first([one, other]))
        broker.expect_equal("the generation of the first when both have joined again", one.generation, other.generation)
    seen.append(one.generation)
    group.synchronise([one, other])
    broker.expect_error(other.leave(), ErrorCode.NONE, what="LeaveGroup")
    one.join()
    seen.append(one.generation)
    broker.expect_equal("the generations", seen, [first + number for number in range(4)])


@requirement(
    "GRP-09",
    since="0.11",
    notices="client: a group of many that starts rebalances once for each member",
    source="KIP-134; group.initial.rebalance.delay.ms",
    sentence="The first join of an empty group waits for group.initial.rebalance.delay.ms, so that others who join meanwhile "
    "are in the first generation too; each of them makes it wait on.",
    accepted="with 3 seconds: two who join half a second apart are in one generation, 3 seconds or more after the second joined",
    tolerated="3 seconds or more after the first joined: the second does not make it wait on",
    configs={"group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS)},
    alone=True,
    deadline_s=60,
)
def initial_delay(broker: Broker) -> None:
    if not any(joined_before_the_delay_ended(broker) for _ in range(ATTEMPTS)):
        broker.fail(f"of two who join at once {ATTEMPTS} times none was in the other's generation")


def joined_before_the_delay_ended(broker: Broker) -> bool:
    """Whether two members that join half a second apart are in one generation; on a slow machine they may not be."""
    group = Group(broker)
    first, second = group.member(), group.member()
    first.identify()
    second.identify()
    began = time.monotonic()
    first.begin_join()
    time.sleep(0.5)
    followed = time.monotonic()
    second.begin_join()
    first.expect_joined()
    followed_ms = (time.monotonic() - followed) * 1000
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect(
        waited_ms >= INITIAL_DELAY_MS,
        f"the first is answered after {waited_ms:.0f} ms, and not before the initial delay is over",
    )
    reported = {one.member_id for one in first.answer.members}
    if first.leads and reported == {first.id}:
        return False
    second.expect_joined()
    broker.expect_equal("the second's generation", second.generation, first.generation)
    leader = group.leader_first([first, second])[0]
    broker.expect_equal("the members", {one.member_id for one in leader.answer.members}, {first.id, second.id})
    if followed_ms < INITIAL_DELAY_MS:
        broker.tolerate(
            f"both are answered {followed_ms:.0f} ms after the second joined: it does not make the first wait on"
        )
    return True


@requirement(
    "GRP-22",
    since="2.2",
    notices="operator: the bound on members that the administrator set is not kept",
    source="KIP-389; group.max.size; GroupMetadataManager.acceptJoiningMember",
    sentence="A group of group.max.size members takes no other member: GROUP_MAX_SIZE_REACHED; its members can join again, and a "
    "place that becomes free can be taken.",
    accepted="GROUP_MAX_SIZE_REACHED(81) for a third member of two; both join again; after one left another is admitted",
    configs=SMALL_GROUPS,
    alone=True,
)
def largest_size(broker: Broker) -> None:
    group = Group(broker)
    members = group.stable(MAX_SIZE)
    third = group.member()
    answer = third.ask_to_join()
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = third.ask_to_join()
    broker.expect_error(answer.error_code, ErrorCode.GROUP_MAX_SIZE_REACHED, what="the third member")
    for member in members:
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="a member that is in")
    group.rejoin(members)
    group.synchronise(members)
    leader, other = group.leader_first(members)
    broker.expect_error(other.leave(), ErrorCode.NONE, what="LeaveGroup")
    group.admit(group.member(), [leader])
