"""GRP: groups with unusual names, members with every version of the requests, many groups and many members."""

from conformance.broker import Broker
from conformance.classic_groups import Group, Member, share_of
from conformance.committed_offsets import TopicPartition, commit_one, committed
from conformance.requirement import requirement
from conformance.requirements.group_joins import join_versions
from reference.protocol.errors import ErrorCode

TINY_GROUPS = 300
TINY_DEADLINE_S = 120
"""The deadline. Members' sessions last twice as long, because each member waits until all others have joined."""
CROWD = 30
AN_INSTANT_S = 0.002
"""How long a check for a response waits."""


@requirement(
    "GRP-25",
    notices="client: an application whose group's name has blanks, slashes or letters beyond ASCII cannot join",
    source="Group ids are strings: KIP-211; GroupCoordinatorService.isGroupIdNotEmpty",
    sentence="A group id may be any text but the empty one: each is a group of its own.",
    accepted="dots, slashes, blanks, control characters, text of all planes, the name of an internal topic, thousands of "
    "characters: each joins, is synchronised and keeps its offset; those that differ in case or in blanks are different",
)
def legal_group_ids(broker: Broker) -> None:
    topic = broker.topic()
    stem = broker.unused_name("group")
    forms = {
        "a dot": ".", "two dots": "..", "slashes": "/../x", "blanks": " a b ", "trailing blank": " a b", "case": " A B ",
        "control characters": "\t\n\r\x01", "null": "\x00", "an emoji": "\U0001f600", "letters": "größe-組-ع",
        "an internal topic": "__consumer_offsets", "3,000 characters": "x" * 3_000, "punctuation": "#$%&*\"'`{}",
    }  # fmt: skip
    names = {reported: f"{form}{stem}" for reported, form in forms.items()}
    first = Group(broker).stable(1)[0].generation
    """The first generation of an ordinary group. A name that is taken for another group's would be in a later one."""
    kept: set[str] = set()
    for number, (reported, name) in enumerate(names.items()):
        with broker.case(reported):
            group = Group(broker, name)
            member = group.stable(1)[0]
            broker.expect_equal("the generation", member.generation, first)
            code = commit_one(broker, name, topic, number, generation=member.generation, member_id=member.id)
            broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit")
            kept.add(name)
    for number, (reported, name) in enumerate(names.items()):
        if name not in kept:
            continue
        with broker.case(f"{reported}: its offset"):
            found = committed(broker, name, [(topic, 0)])
            broker.expect_equal("the offset", [one.offset for one in found.partitions.values()], [number])


@requirement(
    "GRP-26",
    notices="stuck: an application is upgraded member by member, and the old ones are left out meanwhile",
    source="JoinGroupRequest, SyncGroupRequest schemas; KIP-345, KIP-394, KIP-559, KIP-800",
    sentence="Members of all versions of JoinGroup are in one group: each is answered in its own, and none hinders the others.",
    accepted="a group of one member of each version: one generation, one leader, each member's own bytes",
    deadline_s=40,
)
def members_of_every_version(broker: Broker) -> None:
    group = Group(broker)
    members: list[Member] = []
    for version in join_versions(broker):
        members.append(group.member(version=version))
        group.admit(members[-1], members[:-1])
    broker.expect_equal("the number of their generations", len({one.generation for one in members}), 1)
    broker.expect_equal("the leaders", len({one.answer.leader for one in members}), 1)
    group.synchronise(members)
    for member in members:
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what=f"Heartbeat of v{member.version}")


@requirement(
    "GRP-27",
    notices="data: members or offsets of one group turn up in another",
    source="GroupCoordinatorService; KIP-848 (the new coordinator's goals)",
    sentence="Hundreds of tiny groups live beside each other: each has its own members, generation and offsets.",
    accepted=f"{TINY_GROUPS} groups of one member each are stable at once; every member's heartbeat is taken, every group has "
    "its own offset, and a member of one is unknown in the next",
    deadline_s=TINY_DEADLINE_S,
)
def hundreds_of_groups(broker: Broker) -> None:
    profile = broker.subject.profile
    if TINY_GROUPS * profile.join_s > TINY_DEADLINE_S * profile.patience:
        broker.skip(f"needs {TINY_GROUPS} generations one after the other, and a join takes {profile.join_s:g} s here")
    topic = broker.topic()
    groups = [Group(broker, broker.unused_name(f"tiny-{number}")) for number in range(TINY_GROUPS)]
    members: list[Member] = []
    for number, group in enumerate(groups):
        member = group.member(session_timeout_ms=2 * TINY_DEADLINE_S * 1_000)
        member.join()
        answer = member.sync({member.id: share_of(member)})
        member.expect(answer.error_code, "SyncGroup")
        member.hang_up()
        code = commit_one(
            broker, group.name, topic, number, generation=member.generation, member_id=member.id, to=group.address
        )
        member.expect(code, "OffsetCommit")
        members.append(member)
    wanted: TopicPartition = (topic, 0)
    for number, (group, member) in enumerate(zip(groups, members, strict=True)):
        member.expect(member.heartbeat(), "Heartbeat")
        found = committed(broker, group.name, [wanted], to=group.address)
        if wanted not in found.partitions or found.partitions[wanted].offset != number:
            broker.fail(f"group {number} has {found.partitions}")
        other = members[number - 1].id  # some give the same ids in each group
        if other != member.id and group.heartbeat(other, member.generation) != ErrorCode.UNKNOWN_MEMBER_ID:
            broker.fail(f"group {number} accepts a member of group {number - 1}")
    broker.saw(f"{TINY_GROUPS} groups keep their own members and offsets")


@requirement(
    "GRP-47",
    notices="stuck: members that are left behind read nothing; big groups never become stable",
    source="KIP-134, KIP-394; GroupMetadataManager.prepareRebalance",
    sentence="Many members that join at once end in one generation: who was answered earlier is asked to join again, and no "
    "member is left behind.",
    accepted=f"{CROWD} members, all in one generation with one leader, who receives all of them; each is given its own bytes",
    deadline_s=90,
)
def crowds(broker: Broker) -> None:
    group = Group(broker)
    members = [group.member() for _ in range(CROWD)]
    for member in members:
        member.identify()
    for member in members:
        member.begin_join()
    waiting = set(members)

    def together() -> bool:
        for member in members:
            if member in waiting and not member.connection.is_silent(AN_INSTANT_S):
                member.expect_joined()
                waiting.discard(member)
            if member not in waiting and group.rebalances(member):
                member.begin_join()
                waiting.add(member)
        return not waiting and len({one.generation for one in members}) == 1

    broker.eventually(together, f"{CROWD} members are in one generation", within_s=60)
    leader = group.leader_first(members)[0]
    broker.expect_equal("who leads", {one.answer.leader for one in members}, {leader.id})
    reported = {one.member_id for one in leader.answer.members}
    broker.expect(reported == {one.id for one in members}, f"the leader receives {len(reported)} members")
    group.synchronise(members)
