"""GRP: the assignments of a classic group's members. The leader makes them, the coordinator distributes them."""

from collections.abc import Mapping

from conformance.answers import AnswerParts
from conformance.broker import Broker
from conformance.classic_groups import JOINS_AGAIN, Group, Member, share_for, share_of, subscription
from conformance.requirement import requirement
from conformance.requirements.group_generations import HELD_FOR_S, joined_pair
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.sync_group import SyncGroupRequest

LARGE = 64 * 1024


@requirement(
    "GRP-10",
    notices="data: a member reads partitions of another one, or none",
    source="GroupMetadataManager.classicGroupSyncToClassicGroup; ClassicGroup.assignment",
    sentence="Every member is given the bytes that the leader sent for it; a member that it left out is given no bytes, and what "
    "it sent for a stranger is dropped.",
    accepted="of three members two get their own bytes, the third none; also when they ask again",
    tolerated="no protocol type and name in v5: Java compares them where they are there",
)
def own_bytes(broker: Broker) -> None:
    group = Group(broker)
    members = [group.member() for _ in range(3)]
    for number, member in enumerate(members):
        group.admit(member, members[:number])
    leader, one, other = group.leader_first(members)
    given = {leader.id: b"\x00leader", one.id: bytes(range(256)), "nobody": b"for nobody"}
    for follower in (one, other):
        follower.begin_sync()
    leader.begin_sync(given)
    wanted = {leader.id: given[leader.id], one.id: given[one.id], other.id: b""}
    for ask in (Member.synced, Member.sync):
        answers = {member.id: ask(member) for member in members}
        for id, answer in answers.items():
            broker.expect_error(answer.error_code, ErrorCode.NONE, what="SyncGroup")
            broker.expect_equal("the assignment", bytes(answer.assignment), wanted[id])
            if broker.version_for(SyncGroupRequest) >= 5:
                seen, named = (answer.protocol_type, answer.protocol_name), ("consumer", "range")
                if seen == (None, None):
                    broker.tolerate("the answer to SyncGroup names no protocol")
                else:
                    broker.expect_equal("protocol type and name", seen, named)


@requirement(
    "GRP-11",
    notices="stuck: a follower without its assignment reads nothing, or what it read before",
    source="GroupMetadataManager.classicGroupSyncToClassicGroup",
    sentence="A follower's SyncGroup is held until the leader's; in a stable group it is answered at once.",
    accepted="nothing before the leader's, then the follower's bytes; the same bytes at once when it asks again",
)
def follower_waits(broker: Broker) -> None:
    _, leader, follower = joined_pair(broker)
    follower.begin_sync()
    broker.expect(follower.connection.is_silent(HELD_FOR_S), "the follower is not answered before the leader spoke")
    leader.expect(leader.sync({one.id: share_of(one) for one in (leader, follower)}).error_code, "SyncGroup")
    for answer in (follower.synced(), follower.sync()):
        broker.expect_error(answer.error_code, ErrorCode.NONE, what="the follower's SyncGroup")
        broker.expect_equal("the follower's assignment", bytes(answer.assignment), share_of(follower))


@requirement(
    "GRP-13",
    notices="none seen: clients send what JoinGroup answered; the fields are for proxies (KIP-559)",
    source="KIP-559; GroupMetadataManager.validateSyncGroup",
    sentence="From v5 on, SyncGroup with another protocol type or name than the group's, or without one, is refused with "
    "INCONSISTENT_GROUP_PROTOCOL; without one, whatever group it is about.",
    accepted="INCONSISTENT_GROUP_PROTOCOL(23) for another type, another name, no type, no name, and without both also for the "
    "empty group id; the right ones are taken",
    draft="null was thought to mean no check: from v5 on both must be there",
    apis={"SyncGroup": 5},
)
def sync_in_another_protocol(broker: Broker) -> None:
    group = Group(broker)
    member = group.member()
    member.join()
    for type, name in (("connect", "range"), ("consumer", "sticky"), (None, "range"), ("consumer", None)):
        answer = member.sync({member.id: b"wrong"}, protocol_type=type, protocol_name=name)
        broker.expect_error(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what=f"{type} and {name}")
    nobodys = Group(broker)
    nobodys.name = ""
    answer = nobodys.member(id=member.id).sync(protocol_type=None, protocol_name=None)
    broker.expect_error(
        answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what="nothing, for the empty group id"
    )
    answer = member.sync({member.id: b"right"})
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="the group's own")
    broker.expect_equal("the assignment", bytes(answer.assignment), b"right")


@requirement(
    "GRP-23",
    notices="data: two members read one partition, or no member does",
    source="GroupMetadataManager.classicGroupSyncToClassicGroup; documentation, consumers",
    sentence="In no generation does a member get what the leader sent for another one: neither the followers' own assignments "
    "nor a leader of an earlier generation count.",
    accepted="five rebalances with assignments that say generation and member: each member gets its own of its generation, also "
    "where followers send assignments, and where the leader's comes twice",
    tolerated="REBALANCE_IN_PROGRESS(27) for the leader of an earlier generation: clients join again on either; what counts of a "
    "leader that sends other bytes in the same generation: librdkafka and franz-go send the same ones again, Java joins again",
    deadline_s=40,
)
def nobody_gets_anothers(broker: Broker) -> None:
    group = Group(broker)
    members = group.stable(3)
    for _ in range(5):
        group.rejoin(members)
        members = group.leader_first(members)
        leader, *followers = members
        wanted = {one.id: share_for(f"{one.id} in {one.generation}") for one in members}
        lies = {one.id: share_for("a lie") for one in members}
        for follower in followers:
            follower.begin_sync(lies)
        late = leader.sync(lies, generation=leader.generation - 1)
        broker.expect_error(
            late.error_code,
            ErrorCode.ILLEGAL_GENERATION,
            tolerated=JOINS_AGAIN,
            what="the leader of the generation before",
        )
        leader.begin_sync(wanted)
        for member in members:
            broker.expect_equal("the assignment", bytes(member.synced().assignment), wanted[member.id])
        broker.expect_equal("the leader's, sent again", bytes(leader.sync(wanted).assignment), wanted[leader.id])
        for follower in followers:
            broker.expect_equal("the assignment, asked again", bytes(follower.sync().assignment), wanted[follower.id])
        if bytes(leader.sync(lies).assignment) != wanted[leader.id]:
            broker.tolerate("assignments count that the leader sends later, in the same generation")


@requirement(
    "GRP-28",
    notices="misread: Connect, Schema Registry and Kafka Streams put bytes of their own there",
    source="JoinGroupRequest, SyncGroupRequest schemas; documentation, design, group membership protocol",
    sentence="What a protocol type other than `consumer` means is its members' affair: its metadata and assignments are passed "
    "on unharmed, whatever bytes they are.",
    accepted="for the types connect, stream, sr and one of our own: no bytes, all byte values, what looks like a subscription "
    "of another version, and 64 KiB, each to its member",
    deadline_s=40,
)
def opaque_bytes(broker: Broker) -> None:
    largest = broker.subject.profile.configs.get("message.max.bytes") or ""
    size = min(LARGE, int(largest) // 8) if largest.isdigit() else LARGE  # a generation is stored as one record
    kinds: Mapping[str, bytes] = {
        "no bytes": b"",
        "every byte": bytes(range(256)),
        "an odd subscription": b"\x7f\xff\xff\xff\xff\xff",
        f"{size} bytes": bytes(range(251)) * (size // 251 + 1),
    }
    for protocol_type in ("connect", "stream", "sr", "tidegauge's own"):
        for reported, data in kinds.items():
            with broker.case(f"{protocol_type}, {reported}"):
                group = Group(broker, protocol_type=protocol_type)
                members = [group.member(protocols={"v1": data}) for _ in range(2)]
                group.admit(members[0])
                group.admit(members[1], members[:1])
                leader = group.leader_first(members)[0]
                metadata = [bytes(one.metadata) for one in leader.answer.members]
                broker.expect(metadata == [data, data], "the leader receives both members' metadata")
                group.synchronise(members, {members[0].id: data, members[1].id: data[::-1]})


@requirement(
    "GRP-30",
    notices="data: Java and librdkafka with cooperative-sticky: two members read one partition",
    source="KIP-429; ConsumerProtocolSubscription schema",
    sentence="A cooperative rebalance goes in two phases: what a member owns reaches the leader, who takes it away in one "
    "generation and gives it to another member in the next, which the member begins by joining again.",
    accepted="with owned partitions in the metadata: generation 2 takes, generation 3 gives; each member keeps what is not "
    "taken, and no member gets another's bytes",
)
def cooperative_rebalance(broker: Broker) -> None:
    group = Group(broker)
    name = "cooperative-sticky"

    def owning(*partitions: int) -> dict[str, bytes]:
        owned = {"orders": list(partitions)} if partitions else {}
        return {name: subscription("orders", version=1, owned=owned)}

    old, new = group.member(protocols=owning()), group.member(protocols=owning())
    group.admit(old)
    group.synchronise([old], {old.id: b"orders 0 1 2 3"})
    old.protocols = owning(0, 1, 2, 3)
    group.admit(new, [old])
    leader = group.leader_first([old, new])[0]
    reported = AnswerParts({one.member_id: bytes(one.metadata) for one in leader.answer.members})
    broker.expect_equal(
        "what the leader learns that they own", reported, {old.id: old.protocols[name], new.id: owning()[name]}
    )
    group.synchronise([old, new], {old.id: b"orders 0 1", new.id: b"nothing yet"})
    taking = new.generation
    old.protocols = owning(0, 1)
    old.begin_join()
    group.await_rebalance(new)
    new.begin_join()
    for member in (old, new):
        member.expect_joined()
    broker.expect_equal("the generation that gives", new.generation, taking + 1)
    leader = group.leader_first([old, new])[0]
    reported = AnswerParts({one.member_id: bytes(one.metadata) for one in leader.answer.members})
    broker.expect_equal(
        "what the leader receives now", reported, {old.id: old.protocols[name], new.id: new.protocols[name]}
    )
    group.synchronise([old, new], {old.id: b"orders 0 1", new.id: b"orders 2 3"})
