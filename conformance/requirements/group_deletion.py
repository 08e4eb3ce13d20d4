"""GAD: removal of groups without members, together with their offsets."""

from conformance.broker import Broker
from conformance.classic_groups import CONSUMER, Group
from conformance.committed_offsets import NOTHING, expect_committed, expect_offset
from conformance.consumers import DESCRIBE, described, joined, unused_group
from conformance.requirement import requirement
from conformance.requirements.group_admin import DEAD, FIRST_WITH_TYPES, STABLE, delete, describe_one, everywhere
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_groups import DeleteGroupsRequest


@requirement(
    "GAD-04",
    notices="data: offsets go under a live group, which starts by auto.offset.reset",
    source="KIP-229; ClassicGroup.validateDeleteGroup",
    sentence="DeleteGroups removes groups without members, and their offsets; one with members is NON_EMPTY_GROUP, an unknown "
    "one GROUP_ID_NOT_FOUND, each by itself.",
    accepted="68, 69 and NONE(0) in one request, in every version; the removed one is Dead, has no offsets, is not listed, and "
    "can be used again from its first generation on; the one with members goes on",
)
def deleted_groups(broker: Broker) -> None:
    topic = broker.topic()
    first, last = broker.versions_of(DeleteGroupsRequest)
    for version in range(first, last + 1):
        with broker.case(f"v{version}"):
            alive, left, unused = (Group(broker) for _ in range(3))
            (member,) = alive.stable(1)
            (gone,) = left.stable(1)
            first_generation = gone.generation
            broker.expect_error(gone.leave(), ErrorCode.NONE, what="LeaveGroup")
            expect_committed(broker, left.name, {(topic, 0): 5})
            if alive.address == unused.address:
                wanted = {unused.name: ErrorCode.GROUP_ID_NOT_FOUND, alive.name: ErrorCode.NON_EMPTY_GROUP}
                broker.expect_equal("both", delete(broker, unused.name, alive.name, version=version), wanted)
            for group, error in (
                (alive, ErrorCode.NON_EMPTY_GROUP), (unused, ErrorCode.GROUP_ID_NOT_FOUND), (left, ErrorCode.NONE),
                (left, ErrorCode.GROUP_ID_NOT_FOUND),
            ):  # fmt: skip
                broker.expect_equal("the error", delete(broker, group.name, version=version), {group.name: error})
            broker.expect_equal("its state", describe_one(broker, left.name).group_state, DEAD)
            expect_offset(broker, left.name, topic, NOTHING, "its offset")
            broker.expect(left.name not in everywhere(broker), "it is not listed")
            broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="Heartbeat of the one with a member")
            broker.expect_equal("the generation of the next member", left.stable(1)[0].generation, first_generation)


@requirement(
    "GAD-11",
    notices="data: offsets go under a live group, which starts by auto.offset.reset",
    source="KIP-848; ConsumerGroup.validateDeleteGroup; ListGroupsResponse schema",
    sentence="A group of new consumers is listed with its type and state, is NON_EMPTY_GROUP while it has members, and is "
    "deleted with its offsets when it has none.",
    accepted="type consumer; 68 with a member, NONE(0) without; GROUP_ID_NOT_FOUND(69) and offset -1 afterwards",
    since="4.0",
    apis=DESCRIBE | {"ListGroups": FIRST_WITH_TYPES, "DeleteGroups": 0},
)
def consumer_groups(broker: Broker) -> None:
    topic = broker.topic()
    group = unused_group(broker)
    expect_committed(broker, group, {(topic, 0): 5})
    (consumer,) = joined(broker, group, 1, [topic])
    found = everywhere(broker, types_filter=["consumer"])
    reported = {
        name: (one.protocol_type, one.group_state, one.group_type) for name, one in found.items() if name == group
    }
    broker.expect_equal("how it is listed", reported, {group: (CONSUMER, STABLE, "consumer")})
    broker.expect_equal("with a member", delete(broker, group), {group: ErrorCode.NON_EMPTY_GROUP})
    consumer.leave()
    broker.expect_equal("without", delete(broker, group), {group: ErrorCode.NONE})
    broker.expect_equal(
        "described", [one.error_code for one in described(broker, group)], [ErrorCode.GROUP_ID_NOT_FOUND]
    )
    expect_offset(broker, group, topic, NOTHING, "the offset")


@requirement(
    "GAD-13",
    notices="tool: kafka-consumer-groups --delete --all-groups asks for all groups of a coordinator at once",
    source="DeleteGroupsRequest schema",
    sentence="DeleteGroups of many groups deletes each; a group that is named twice is answered and deleted once, or answered "
    "twice.",
    accepted="NONE(0) for 30 empty groups; none of them is listed afterwards",
)
def many_deleted(broker: Broker) -> None:
    topic = broker.topic()
    by_address: dict[tuple[str, int], list[str]] = {}
    for _ in range(30):
        group = Group(broker)
        expect_committed(broker, group.name, {(topic, 0): 1})
        by_address.setdefault(group.address, []).append(group.name)
    for address, names in by_address.items():
        codes = delete(broker, *names, names[0], to=address)
        broker.expect_equal("the groups answered", set(codes), set(names))
        left = {name: code for name, code in codes.items() if code != ErrorCode.NONE}
        broker.expect(set(left) <= {names[0]}, f"the errors of {len(names)} groups are {left}")
    found = everywhere(broker)
    broker.expect(not any(name in found for names in by_address.values() for name in names), "none of them is listed")
