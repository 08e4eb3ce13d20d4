"""GAD: group administration. What ListGroups, DescribeGroups and ConsumerGroupDescribe report, and what DeleteGroups removes."""

from typing import Any

from conformance.answers import AnswerParts, only
from conformance.broker import Broker
from conformance.classic_groups import CONSUMER, Group, share_of, subscription
from conformance.cluster import STATE_WITHIN_S, cluster
from conformance.committed_offsets import NOTHING, await_offset, expect_committed, expect_offset
from conformance.consumers import DESCRIBE, HEARTBEAT, described, joined, unused_group
from conformance.requirement import requirement
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.describe_groups import DescribeGroupsRequest
from reference.protocol.messages.list_groups import ListGroupsRequest

FIRST_WITH_NOT_FOUND = 6
"""The first version of DescribeGroups in which an unknown group is an error (KIP-1043)."""
FIRST_WITH_STATES, FIRST_WITH_TYPES = 4, 5
"""The first versions of ListGroups with states (KIP-518) and types (KIP-848), in responses and as filters."""
FIRST_WITH_INSTANCES = 4
NOT_ASKED = -(2**31)
"""The authorized operations in a response if the request did not ask for them."""
EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"
PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"
ENDS = ("kill", "restart")


def describe(broker: Broker, *groups: str, version: int | None = None, to: Any = None, **options: Any) -> list[Any]:
    """The response of DescribeGroups for groups of one coordinator."""
    request = DescribeGroupsRequest(groups=list(groups), **options)
    return list(broker.call(request, version, to=to or broker.coordinator(groups[0])).groups)


def describe_one(broker: Broker, group: str, version: int | None = None, **options: Any) -> Any:
    """The response of DescribeGroups for one group."""
    found = describe(broker, group, version=version, **options)
    if [one.group_id for one in found] != [group]:
        broker.fail(f"DescribeGroups of one group reports {[one.group_id for one in found]}")
    return found[0]


def list_groups(broker: Broker, *, version: int | None = None, to: Any = None, **filters: Any) -> dict[str, Any]:
    """The groups that ListGroups reports at one broker, by id; waits until the broker has loaded its groups."""
    answer: Any = None

    def is_loaded() -> bool:
        nonlocal answer
        answer = broker.call(ListGroupsRequest(**filters), version, to=to)
        return answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    broker.eventually(is_loaded, "ListGroups of a broker that has loaded its groups")
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="ListGroups")
    ids = [one.group_id for one in answer.groups]
    broker.expect(len(ids) == len(set(ids)), f"ListGroups reports {len(ids)} groups, each once")
    return AnswerParts({one.group_id: one for one in answer.groups})


def delete(broker: Broker, *groups: str, version: int | None = None, to: Any = None) -> dict[str, int]:
    """The error code of each group in DeleteGroups at one coordinator."""
    request = DeleteGroupsRequest(groups_names=list(groups))
    answer = broker.call(request, version, to=to or broker.coordinator(groups[0]))
    return AnswerParts({one.group_id: one.error_code for one in answer.results})


@requirement(
    "GAD-01",
    notices="tool: kafka-consumer-groups --describe shows a group that does not exist, or ends on another code",
    source="KIP-1043; GroupMetadataManager.describeGroups",
    sentence="DescribeGroups of a group that does not exist reports the state Dead and no members; from v6 on with "
    "GROUP_ID_NOT_FOUND, before without an error.",
    accepted="Dead, no type, no protocol, no members; GROUP_ID_NOT_FOUND(69) from v6 on, NONE(0) before",
)
def describe_unknown(broker: Broker) -> None:
    group = Group(broker).name
    first, last = broker.versions_of(DescribeGroupsRequest)
    for version in range(first, last + 1):
        found = describe_one(broker, group, version)
        wanted = ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_WITH_NOT_FOUND else ErrorCode.NONE
        broker.expect_error(found.error_code, wanted, what=f"v{version}")
        reported = (found.group_state, found.protocol_type, found.protocol_data, list(found.members))
        broker.expect_equal("what is reported", reported, (DEAD, "", "", []))


@requirement(
    "GAD-02",
    notices="tool: kafka-consumer-groups --describe and consoles show members and partitions by it",
    source="ClassicGroup.describe, describeNoMetadata",
    sentence="DescribeGroups of a stable group reports protocol type and protocol, and each member with client id, host, "
    "metadata "
    "and assignment; in other states the members are reported without metadata.",
    accepted="Stable with each member's own bytes; PreparingRebalance and CompletingRebalance (AwaitingSync before 1.1, "
    "KAFKA-5565) with members, no protocol and no "
    "metadata; Empty with no members; in every version",
)
def describe_states(broker: Broker) -> None:
    group = Group(broker)
    members = group.stable(2, protocols={"range": subscription("orders", user_data=b"mine")})
    first, last = broker.versions_of(DescribeGroupsRequest)
    for version in range(first, last + 1):
        found = describe_one(broker, group.name, version)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}")
        reported = (found.group_state, found.protocol_type, found.protocol_data)
        broker.expect_equal("state, type and protocol", reported, (STABLE, CONSUMER, "range"))
        reported_members = {
            one.member_id: (one.client_id, bytes(one.member_metadata), bytes(one.member_assignment))
            for one in found.members
        }
        wanted = {one.id: (one.client_id, one.protocols["range"], share_of(one)) for one in members}
        broker.expect_equal("the members", reported_members, wanted)
        broker.expect(all(one.client_host for one in found.members), "each member has a host")
    newcomer = group.member()
    newcomer.identify()
    newcomer.begin_join()
    group.await_rebalance(members[0])
    expect_without_metadata(broker, group, PREPARING, 3)
    for member in members:
        member.begin_join()
    for member in (newcomer, *members):
        member.expect_joined()
    expect_without_metadata(broker, group, COMPLETING if broker.is_kafka("1.1") else "AwaitingSync", 3)
    for member in (newcomer, *members):
        broker.expect_error(member.leave(), ErrorCode.NONE, what="LeaveGroup")
    expect_without_metadata(broker, group, EMPTY, 0)


def expect_without_metadata(broker: Broker, group: Group, state: str, members: int) -> None:
    """Expect that the group is in this state, and is described without protocol and metadata."""
    found = describe_one(broker, group.name)
    reported = (found.group_state, found.protocol_data, len(found.members))
    broker.expect_equal("state, protocol and number of members", reported, (state, "", members))
    broker.expect_equal("the metadata", {bytes(one.member_metadata) for one in found.members} - {b""}, set())


@requirement(
    "GAD-03",
    notices="tool: kafka-consumer-groups --list and lag exporters find groups by it",
    source="KIP-518, KIP-848; GroupCoordinatorService.listGroups",
    sentence="ListGroups reports every group that the broker coordinates, with its protocol type, from v4 on its state, from v5 "
    "on its type; it can be asked for some states and types, in whatever case (since 3.8, KAFKA-16095), and an unknown one is "
    "that of no group.",
    accepted="a stable, an empty and a rebalancing group, each once, and those of the filters only",
    requires=("BAS-08",),
)
def listed_groups(broker: Broker) -> None:
    stable, joining = Group(broker), Group(broker, protocol_type="connect")
    stable.stable(1)
    joining.member().join()
    empty = Group(broker).name
    expect_committed(broker, empty, {(broker.topic(), 0): 1})
    ours = {stable.name: (CONSUMER, STABLE), joining.name: ("connect", COMPLETING), empty: ("", EMPTY)}
    first, last = broker.versions_of(ListGroupsRequest)
    for version in range(first, last + 1):
        found = everywhere(broker, version=version)
        reported = {
            name: (found[name].protocol_type, found[name].group_state, found[name].group_type)
            for name in ours
            if name in found
        }
        wanted = {
            name: (
                protocol_type,
                state if version >= FIRST_WITH_STATES else "",
                "classic" if version >= FIRST_WITH_TYPES else "",
            )
            for name, (protocol_type, state) in ours.items()
        }
        broker.expect_equal(f"v{version}: our groups", reported, wanted)
    lower_case = {stable.name} if broker.is_kafka("3.8") else set[str]()
    for states, wanted in (
        ([STABLE], {stable.name}), ([EMPTY, COMPLETING], {empty, joining.name}), (["stable"], lower_case),
        (["NoSuchState"], set[str]()), ([], set(ours)),
    ):  # fmt: skip
        if last >= FIRST_WITH_STATES:
            found = everywhere(broker, states_filter=states)
            broker.expect_equal(f"our groups in states {states}", set(found) & set(ours), wanted)
    for types, wanted in ((["classic"], set(ours)), (["Consumer"], set[str]()), (["no type"], set[str]())):
        if last >= FIRST_WITH_TYPES:
            found = everywhere(broker, types_filter=types)
            broker.expect_equal(f"our groups of types {types}", set(found) & set(ours), wanted)


def everywhere(broker: Broker, **options: Any) -> dict[str, Any]:
    """The groups of all brokers; expects that no group is reported by two brokers."""
    found: dict[str, Any] = {}
    for one in broker.metadata([]).brokers:
        groups = list_groups(broker, to=(one.host, one.port), **options)
        twice = set(found) & set(groups)
        broker.expect(not twice, f"node {one.node_id} reports no group that another one reported")
        found |= groups
    return found


@requirement(
    "GAD-05",
    notices="tool: Java's Admin asks for a classic group on this code, and fails on others",
    source="KIP-848; GroupMetadataManager.consumerGroupDescribe",
    sentence="ConsumerGroupDescribe of a classic group, or of one that does not exist, is GROUP_ID_NOT_FOUND; so is "
    "DescribeGroups, from v6 on, of a group of new consumers.",
    accepted="GROUP_ID_NOT_FOUND(69); before v6 Dead without an error",
    since="4.0",
    apis=DESCRIBE,
)
def the_other_kind(broker: Broker) -> None:
    classic, unused = Group(broker), Group(broker)
    classic.stable(1)
    for group in (classic, unused):
        for found in described(broker, group.name):
            broker.expect_error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND, what="ConsumerGroupDescribe")
    consumers = unused_group(broker)
    joined(broker, consumers, 1, [broker.topic()])
    first, last = broker.versions_of(DescribeGroupsRequest)
    for version in range(first, last + 1):
        found = describe_one(broker, consumers, version)
        wanted = ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_WITH_NOT_FOUND else ErrorCode.NONE
        broker.expect_error(found.error_code, wanted, what=f"DescribeGroups v{version}")
        broker.expect_equal("its state", found.group_state, DEAD)


@requirement(
    "GAD-06",
    notices="tool: Java's Admin looks for the coordinator on this code; else it shows the group as gone",
    source="GroupCoordinatorService.describeGroups, deleteGroups; KIP-848",
    sentence="A broker that is not a group's coordinator says so, for each group by itself: NOT_COORDINATOR.",
    accepted="NOT_COORDINATOR(16) from every other node for DescribeGroups, ConsumerGroupDescribe and DeleteGroups; the group "
    "is listed by its coordinator only, and is not removed",
    nodes=3,
    deadline_s=60,
)
def not_the_coordinator(broker: Broker) -> None:
    with cluster(broker) as nodes:
        group = Group(broker)
        (member,) = group.stable(1)
        others = {node: address for node, address in nodes.addresses.items() if address != group.address}
        broker.expect_equal("the number of other nodes", len(others), 2)
        for node, address in others.items():
            codes = [one.error_code for one in describe(broker, group.name, to=address)]
            broker.expect_equal(f"DescribeGroups at node {node}", codes, [ErrorCode.NOT_COORDINATOR])
            codes = list(delete(broker, group.name, to=address).values())
            broker.expect_equal(f"DeleteGroups at node {node}", codes, [ErrorCode.NOT_COORDINATOR])
            broker.expect(group.name not in list_groups(broker, to=address), f"node {node} does not list it")
            if broker.is_kafka("4.0") and broker.serves(ConsumerGroupDescribeRequest):
                answer = broker.call(ConsumerGroupDescribeRequest(group_ids=[group.name]), to=address)
                codes = [one.error_code for one in answer.groups]
                broker.expect_equal(f"ConsumerGroupDescribe at node {node}", codes, [ErrorCode.NOT_COORDINATOR])
        broker.expect(group.name in list_groups(broker, to=group.address), "its coordinator lists it")
        broker.expect_error(member.heartbeat(), ErrorCode.NONE, what="the member's Heartbeat")


@requirement(
    "GAD-07",
    notices="none seen: tools leave the empty group id out",
    source="GroupCoordinatorService.describeGroups, deleteGroups, consumerGroupDescribe",
    sentence="The empty group id, under which old clients without a group commit, is a group without members for "
    "DescribeGroups "
    "and DeleteGroups, and INVALID_GROUP_ID for ConsumerGroupDescribe; the others of the request are answered as ever.",
    accepted="Empty once an offset is committed, or Dead; NONE(0) for its deletion, or GROUP_ID_NOT_FOUND(69) where there is "
    "nothing, NOT_COORDINATOR(16) where another broker coordinates it; INVALID_GROUP_ID(24), in "
    "4.0.0 UNKNOWN_SERVER_ERROR(-1) (apache/kafka#20036); the connection stays",
    tolerated="INVALID_GROUP_ID(24) for all of them",
    draft="DeleteGroups was said to refuse it with INVALID_GROUP_ID: Kafka deletes its offsets",
    exclusive=True,
)
def the_empty_group(broker: Broker) -> None:
    topic, other = broker.topic(), Group(broker)
    (member,) = other.stable(1)
    expect_committed(
        broker, other.name, {(topic, 0): 7}, generation=member.generation, member_id=member.id, to=other.address
    )
    invalid = {ErrorCode.INVALID_GROUP_ID}
    found = AnswerParts({one.group_id: one for one in describe(broker, "", other.name, to=other.address)})
    broker.expect_equal("the groups reported", set(found), {"", other.name})
    broker.expect_error(
        found[""].error_code,
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NOT_COORDINATOR,
        tolerated=invalid,
        what="DescribeGroups",
    )
    broker.expect_equal("the other one's state", found[other.name].group_state, STABLE)
    codes = delete(broker, "", other.name, to=other.address)
    broker.expect_equal("the groups answered", set(codes), {"", other.name})
    broker.expect_error(
        codes[""],
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NOT_COORDINATOR,
        tolerated=invalid,
        what="DeleteGroups",
    )
    broker.expect_error(codes[other.name], ErrorCode.NON_EMPTY_GROUP, what="DeleteGroups of the other one")
    expect_offset(broker, other.name, topic, 7, "the other one's offset")
    if broker.is_kafka("4.0") and broker.serves(ConsumerGroupDescribeRequest):
        answer = broker.call(ConsumerGroupDescribeRequest(group_ids=[""]), to=other.address)
        wanted = ErrorCode.INVALID_GROUP_ID if broker.is_kafka("4.0.1") else ErrorCode.UNKNOWN_SERVER_ERROR
        broker.expect_equal("ConsumerGroupDescribe", [one.error_code for one in answer.groups], [wanted])


@requirement(
    "GAD-08",
    notices="tool: Java's Admin shows operations that were not asked for, or none where they were asked for",
    source="DescribeGroupsRequest schema, includeAuthorizedOperations; KIP-430",
    sentence="DescribeGroups and ConsumerGroupDescribe report the authorized operations only when asked for them; else they are "
    "-2147483648.",
    accepted="the least integer (0 before 2.5) unless asked; where nothing is forbidden at least read, describe and "
    "delete when asked",
    apis={"DescribeGroups": 3},
)
def authorized_operations(broker: Broker) -> None:
    group = Group(broker)
    group.stable(1)
    usable = sum(1 << operation for operation in (3, 6, 8))
    nothing = NOT_ASKED if broker.is_kafka("2.5") else 0
    broker.expect_equal("not asked", describe_one(broker, group.name).authorized_operations, nothing)
    asked = describe_one(broker, group.name, include_authorized_operations=True).authorized_operations
    broker.expect_equal("read, delete and describe, when asked", asked & usable if asked >= 0 else asked, usable)


@requirement(
    "GAD-09",
    notices="tool: Java's Admin.describeConsumerGroups asks for all groups of a coordinator at once",
    source="DescribeGroupsRequest schema; GroupCoordinatorService.describeGroups",
    sentence="DescribeGroups of several groups reports each; no groups are answered with none.",
    accepted="a stable, an empty and an unknown group of one coordinator, each as if alone; an empty answer for an empty list",
)
def several_described(broker: Broker) -> None:
    groups = {name: broker.coordinator(name) for name in (Group(broker).name for _ in range(12))}
    address = max(set(groups.values()), key=list(groups.values()).count)
    names = [name for name, at in groups.items() if at == address][:3]
    broker.expect_equal("groups of one coordinator", len(names), 3)
    Group(broker, names[0]).stable(1)
    expect_committed(broker, names[1], {(broker.topic(), 0): 1})
    found = AnswerParts({one.group_id: one.group_state for one in describe(broker, *names, to=address)})
    broker.expect_equal("the states", found, dict(zip(names, (STABLE, EMPTY, DEAD), strict=True)))
    broker.expect_equal("no groups", list(broker.call(DescribeGroupsRequest(groups=[]), to=address).groups), [])


@requirement(
    "GAD-10",
    notices="tool: Java's Admin and kafka-consumer-groups show static members, and remove them, by this id",
    source="KIP-345; DescribeGroupsResponse schema",
    sentence="From v4 on a static member is reported with its instance id, under the member id that it has now; below it is "
    "reported without.",
    accepted="the instance id from v4 on; after the member came back, its new id and one member",
    apis={"JoinGroup": 5, "DescribeGroups": 0},
)
def static_members(broker: Broker) -> None:
    group = Group(broker)
    (old,) = group.stable(1, instance_id="one")
    new = old.successor()
    new.join()
    first, last = broker.versions_of(DescribeGroupsRequest)
    for version in range(first, last + 1):
        reported = [(one.member_id, one.group_instance_id) for one in describe_one(broker, group.name, version).members]
        instance = "one" if version >= FIRST_WITH_INSTANCES else None
        broker.expect_equal(f"v{version}: the members", reported, [(new.id, instance)])


@requirement(
    "GAD-12",
    notices="data: a group of the same name begins at offsets that were deleted",
    source="GroupCoordinatorService.onElection; CoordinatorLoaderImpl",
    sentence="After the only broker was killed and started again the groups that were there are listed in their states, and "
    "those that were deleted are not.",
    accepted="a stable and an empty group as before, the deleted one Dead and not listed, a deleted group's offset -1",
    hooks=ENDS,
    deadline_s=120,
)
def broker_starts_again(broker: Broker) -> None:
    topic = broker.topic()
    stable, empty, deleted = (Group(broker) for _ in range(3))
    stable.stable(2)
    for group in (empty, deleted):
        expect_committed(broker, group.name, {(topic, 0): 5})
    broker.expect_equal("DeleteGroups", delete(broker, deleted.name), {deleted.name: ErrorCode.NONE})
    with cluster(broker) as nodes:
        node = nodes.node_at(stable.address)
        nodes.kill(node)
        nodes.restart(node)
        for group in (stable, empty, deleted):
            group.await_coordinator(within_s=STATE_WITHIN_S)
        found = everywhere(broker, version=min(broker.version_for(ListGroupsRequest), FIRST_WITH_STATES))
        reported = {
            group.name: found[group.name].group_state for group in (stable, empty, deleted) if group.name in found
        }
        with_states = broker.version_for(ListGroupsRequest) >= FIRST_WITH_STATES
        wanted = {stable.name: STABLE if with_states else "", empty.name: EMPTY if with_states else ""}
        broker.expect_equal("how they are listed", reported, wanted)
        broker.expect_equal("the members of the stable one", len(describe_one(broker, stable.name).members), 2)
        await_offset(broker, deleted.name, topic, NOTHING, "the deleted one's offset")
        await_offset(broker, empty.name, topic, 5, "the empty one's offset")


@requirement(
    "GAD-14",
    notices="tool: Java's Admin shows operations that were not asked for, or none where they were asked for",
    source="KIP-848; ConsumerGroupDescribeRequest schema",
    sentence="ConsumerGroupDescribe reports the authorized operations only to who asks for them.",
    accepted="-2147483648 unless asked; at least read, describe and delete when asked",
    since="4.0",
    apis=HEARTBEAT | DESCRIBE,
)
def authorized_operations_of_consumers(broker: Broker) -> None:
    group = unused_group(broker)
    joined(broker, group, 1, [broker.topic()])
    usable = sum(1 << operation for operation in (3, 6, 8))
    for asked, wanted in ((False, NOT_ASKED), (True, usable)):
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=asked)
        seen = only(
            broker.call(request, to=broker.coordinator(group)).groups, "group in the answer"
        ).authorized_operations
        broker.expect_equal(f"asked: {asked}", seen & usable if asked and seen >= 0 else seen, wanted)
