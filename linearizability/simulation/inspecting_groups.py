# pyright: reportPrivateUsage=false
"""What groups and committed offsets look like to administrators, and what is refused to members that err (GAD-*, GRP-*, CGH-*,
OFF-*); see `inspecting`. A group that only the inspector uses is made, filled, emptied and deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from linearizability.client.group_member import encode_assignment, encode_subscription
from linearizability.client.requests import (
    Committed,
    Topic,
    commit_request,
    delete_offsets_request,
    fetch_offsets_of_one,
    fetch_offsets_request,
)
from linearizability.simulation.inspecting import (
    Chapter,
    Inspector,
    Part,
    Question,
    changed,
    refusals,
    require,
    require_same,
)
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.consumer_group import ConsumerGroup
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.describe_groups import DescribeGroupsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.list_groups import ListGroupsRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.primitives import NO_UUID

UNKNOWN, ANOTHER, NOWHERE = "unknown", "another", "nowhere"
FAR = 1_000
"""So many generations ahead no group comes in a run; the next one may have come before the question arrives."""
STATES = ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Unknown")
TYPES = ("classic", "consumer", "share")
FILTERS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    *(((state,), ()) for state in STATES),
    *(((), (type,)) for type in TYPES),
    *((("Stable",), (type,)) for type in TYPES),
    (("eMPTY", "STABLE"), ("Classic", "CONSUMER")),
    (("Empty", "Dead"), ("classic",)),
)
"""The states and types by which groups are listed."""

PATTERNS = (
    "orders.*", r"orders\d", "^orders0$", "o(r|s)ders[01]", "(?i)ORDERS1", "(?i:O)rders.", r"\Qorders\E0", "orders[^0]",
    "orders", "x*orders0", "o.{5}0", "o.{2,5}1", "o.{6,}", "o[a-z]+0", "or{1}ders0", r"orders[[:digit:]]", r"[[:alpha:]]+1",
    r"orders\p{Nd}", r"\porders0", r"orders\x30", "orders(0|1)?", "(?P<name>orders)1", r"\borders0\b", r"\Aorders1\z",
    "orders0|copies", "|orders1", "made-.*", ".+", "[o]rders[0-0]", r"\w+0", r"orders\D", r"[\d]rders0", "orders{0}", "(?s).*1",
    "o.*?0", "(orders)(0)", r"__.*", "(?-i)Orders0", "orders[0-9]{1,2}", "o[^a-q]ders0", r"orders\B0", r"orders\b0",
    "(?i)ord[E]rs[0-1]+",
)  # fmt: skip
"""RE2's patterns. Those that Python reads alike are held against Python, the rest against `OF_RE2`."""
OF_RE2 = {
    r"\Qorders\E0": "orders0", r"orders[[:digit:]]": "orders[0-9]", r"[[:alpha:]]+1": "[A-Za-z]+1",
    r"orders\p{Nd}": "orders[0-9]", r"\porders0": None, r"\Aorders1\z": "orders1", "(?-i)Orders0": "Orders0",
}  # fmt: skip
"""What Python has another word for; None is a pattern that is refused."""
PATTERNS_A_RUN = 4


# ---- the groups that are there


def listed_groups(client: Inspector) -> Chapter:
    """A list has the coordinator's groups of the states and types that are asked for, and no others."""
    for states, types in FILTERS:
        number, shard = client.group_shard()
        body = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
        answer = yield Question(body, 5, number)
        require_same("the list's error", answer.error_code, E.NONE)
        listed = sorted((each.group_id, each.group_state, each.group_type) for each in answer.groups)
        wanted_states, wanted_types = {each.lower() for each in states}, {each.lower() for each in types}
        expected = sorted(
            (id, state, type)
            for id, (state, type) in _groups(shard).items()
            if (not states or state.lower() in wanted_states) and (not types or type in wanted_types)
        )
        require_same(f"groups in {states} of types {types}", listed, expected)


def _groups(shard: Any) -> dict[str, tuple[str, str]]:
    """Return each group's state and type."""
    return {
        id: (group.state_name, "classic" if isinstance(group, ClassicGroup) else "consumer")
        for id, group in shard.groups.items()
    }


def described_groups(client: Inspector) -> Chapter:
    """A group is described by its own API alone; what does not exist is said not to be there."""
    number, shard = client.group_shard()
    for id, group in [*shard.groups.items()]:
        is_classic = isinstance(group, ClassicGroup)
        answer = yield Question(DescribeGroupsRequest(groups=[id, UNKNOWN]), 6, number)
        described, missing = answer.groups
        require_same(f"{id} described as a classic group", described.error_code == E.NONE, is_classic)
        require_same(f"{UNKNOWN} described", (missing.error_code, missing.group_state), (E.GROUP_ID_NOT_FOUND, "Dead"))
        if is_classic:
            answered = sorted((each.member_id, each.group_instance_id) for each in described.members)
            require_same(f"members of {id}", answered, sorted((m, one.instance_id) for m, one in group.members.items()))
            require_same(f"the protocol type of {id}", described.protocol_type, group.protocol_type or "")
            require_same(f"the state of {id}", described.group_state, group.state_name)
        answer = yield Question(DescribeGroupsRequest(groups=[id]), 5, number)
        require_same(f"an older description of {id}", answer.groups[0].error_code, E.NONE)
        require_same("its state", answer.groups[0].group_state, group.state_name if is_classic else "Dead")
        answer = yield Question(ConsumerGroupDescribeRequest(group_ids=[id, UNKNOWN]), 1, number)
        codes = [each.error_code for each in answer.groups]
        require_same(
            f"{id} described by its members",
            codes,
            [E.GROUP_ID_NOT_FOUND if is_classic else E.NONE, E.GROUP_ID_NOT_FOUND],
        )
        if isinstance(group, ConsumerGroup):
            _require_described(answer.groups[0], group)


def _require_described(described: Any, group: ConsumerGroup) -> None:
    require_same("the group's epoch", described.group_epoch, group.epoch)
    require_same("the assignment's epoch", described.assignment_epoch, group.assignment_epoch)
    members = {each.member_id: each for each in described.members}
    require_same("the members", sorted(members), sorted(group.members))
    for id, member in group.members.items():
        each = members[id]
        answered = (each.member_epoch, each.instance_id, sorted(each.subscribed_topic_names))
        require_same(f"member {id}", answered, (member.epoch, member.instance_id, sorted(member.topics)))
        require_same(f"the pattern of {id}", each.subscribed_topic_regex or "", member.regex or "")


def fetched_offsets(client: Inspector) -> Chapter:
    """Every group's offsets are fetched as they are kept, by all versions; of a group that does not exist nothing is."""
    number, shard = client.group_shard()
    keys = client.cluster.inputs()
    ids = {topic: Topic(topic, client.topic_id(topic), 1) for topic, _ in keys}
    for group in [*shard.offsets._committed, UNKNOWN]:
        kept = {place: (each.offset, each.metadata) for place, each in shard.offsets.of(group).items()}
        answer = yield Question(fetch_offsets_request({group: None}), 8, number)
        require_same(f"all offsets of {group}", _fetched(answer.groups[0].topics), kept)
        expected = {key: kept.get(key, (-1, "")) for key in [*keys, (NOWHERE, 0)]}
        answer = yield Question(fetch_offsets_request({group: [*expected], ANOTHER: [keys[0]]}), 9, number)
        require_same(f"offsets of {group}", _fetched(answer.groups[0].topics), expected)
        require_same(f"offsets of {ANOTHER}", _fetched(answer.groups[1].topics), {keys[0]: (-1, "")})
        answer = yield Question(fetch_offsets_of_one(group, [*expected]), 7, number)
        require_same(f"offsets of {group} alone", _fetched(answer.topics), expected)
        answer = yield Question(fetch_offsets_of_one(group, None), 5, number)
        require_same(f"all offsets of {group} alone", _fetched(answer.topics), kept)
        body = fetch_offsets_request({group: [(ids[topic], index) for topic, index in keys]})
        answer = yield Question(body, 10, number)
        names = {topic.id: topic.name for topic in ids.values()}
        found = {
            (names[topic.topic_id], each.partition_index): each.committed_offset
            for topic in answer.groups[0].topics
            for each in topic.partitions
        }
        require_same(f"offsets of {group} by id", found, {key: kept.get(key, (-1, ""))[0] for key in keys})
    stranger = fetch_offsets_request({UNKNOWN: [(Topic(NOWHERE, NO_UUID, 1), 0)]})
    yield from refusals([(Question(stranger, 10, number), E.UNKNOWN_TOPIC_ID)])


def _fetched(topics: list[Any]) -> dict[tuple[str, int], tuple[int, str]]:
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata)
        for topic in topics
        for each in topic.partitions
    }


# ---- what is refused to members of the groups that are there


def refused_to_members(client: Inspector) -> Chapter:
    """A client that is no member, or names a generation that never comes, changes nothing.

    The group may lose its last member meanwhile. So nothing is asked here that would then be granted: it would change what the
    members' histories are judged by.
    """
    number, shard = client.group_shard()
    for id, group in [*shard.groups.items()]:
        if group.is_empty:
            continue
        member = next(iter(group.members))
        topic = client.cluster.inputs()[0][0]
        cases = [
            (Question(fetch_offsets_request({id: [(topic, 0)]}, member_id=UNKNOWN, member_epoch=1), 9, number),
             E.NONE if isinstance(group, ClassicGroup) else E.UNKNOWN_MEMBER_ID),
        ]  # fmt: skip
        if isinstance(group, ClassicGroup):
            cases += _of_classic(number, group, member, topic)
        elif isinstance(group, ConsumerGroup) and group.members[member].classic is None:
            cases += _of_consumer(number, group, member, topic)
        yield from refusals(cases)


def _of_classic(number: int, group: ClassicGroup, member: str, topic: str) -> list[tuple[Question, E]]:
    id, generation, instance = group.id, group.generation, group.members[member].instance_id
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="no-such-protocol", metadata=b"")
    joining: dict[str, Any] = {"group_id": id, "session_timeout_ms": 1_000, "rebalance_timeout_ms": 500}
    offers: dict[str, Any] = {"protocol_type": "consumer", "protocols": [protocol]}
    of: dict[str, Any] = {
        "group_id": id,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
    }
    syncing = changed(of, protocol_type=group.protocol_type, protocol_name=group.protocol)
    cases: list[tuple[Any, int, E]] = [
        (HeartbeatRequest(**changed(of, generation_id=generation + FAR)), 4, E.ILLEGAL_GENERATION),
        (HeartbeatRequest(**changed(of, generation_id=generation - 1)), 4, E.ILLEGAL_GENERATION),
        (HeartbeatRequest(**changed(of, member_id=UNKNOWN, group_instance_id=None)), 4, E.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest(**changed(of, member_id=UNKNOWN, group_instance_id=UNKNOWN)), 4, E.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest(**of), 4, E.NONE),
        (SyncGroupRequest(**changed(syncing, generation_id=generation + FAR)), 5, E.ILLEGAL_GENERATION),
        (SyncGroupRequest(**changed(syncing, member_id=UNKNOWN, group_instance_id=None)), 5, E.UNKNOWN_MEMBER_ID),
        (SyncGroupRequest(**changed(syncing, protocol_type="other")), 5, E.INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroupRequest(**changed(syncing, protocol_name="no-such-protocol")), 5, E.INCONSISTENT_GROUP_PROTOCOL),
        (JoinGroupRequest(**joining, member_id="", **offers), 9, E.INCONSISTENT_GROUP_PROTOCOL),
        (JoinGroupRequest(**joining, member_id="", **changed(offers, protocol_type="other")), 9, E.INCONSISTENT_GROUP_PROTOCOL),
        (JoinGroupRequest(**joining, member_id="", **changed(offers, protocols=[])), 9, E.INCONSISTENT_GROUP_PROTOCOL),
        (LeaveGroupRequest(group_id=id, members=[LeaveGroupRequest.MemberIdentity(member_id=UNKNOWN)]), 5, E.UNKNOWN_MEMBER_ID),
        (LeaveGroupRequest(group_id=id, member_id=UNKNOWN), 2, E.UNKNOWN_MEMBER_ID),
        (commit_request(id, {(topic, 0): 0}, generation=generation + FAR, member_id=member, instance_id=instance), 8,
         E.ILLEGAL_GENERATION),
        (commit_request(id, {(topic, 0): 0}, generation=generation - 1, member_id=member, instance_id=instance), 8,
         E.ILLEGAL_GENERATION),
        (commit_request(id, {(topic, 0): 0}, generation=generation, member_id=UNKNOWN), 8, E.UNKNOWN_MEMBER_ID),
        (_beat(id, member, 1), 1, E.GROUP_ID_NOT_FOUND),
    ]  # fmt: skip
    if instance is not None:
        thief: dict[str, Any] = {"member_id": UNKNOWN}
        cases += [
            (HeartbeatRequest(**changed(of, **thief)), 4, E.FENCED_INSTANCE_ID),
            (SyncGroupRequest(**changed(syncing, **thief)), 5, E.FENCED_INSTANCE_ID),
            (JoinGroupRequest(**joining, member_id=UNKNOWN, group_instance_id=instance,
                              **_as_they(group)), 9, E.FENCED_INSTANCE_ID),
            (LeaveGroupRequest(group_id=id, members=[LeaveGroupRequest.MemberIdentity(
                member_id=UNKNOWN, group_instance_id=instance)]), 5, E.FENCED_INSTANCE_ID),
        ]  # fmt: skip
    return [(Question(body, version, number), code) for body, version, code in cases]


def _as_they(group: ClassicGroup) -> dict[str, Any]:
    """A protocol type and protocols that the group's members support."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=group.protocol or "", metadata=b"")
    return {"protocol_type": group.protocol_type or "", "protocols": [protocol]}


def _beat(group: str, member: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)


def _of_consumer(number: int, group: ConsumerGroup, member: str, topic: str) -> list[tuple[Question, E]]:
    id, epoch, commit = group.id, group.members[member].epoch, {(topic, 0): 0}
    old = max(0, group.members[member].previous_epoch - 1)
    cases: list[tuple[Any, int, E]] = [
        (_beat(id, member, epoch + FAR), 1, E.FENCED_MEMBER_EPOCH),
        (_beat(id, member, old or epoch + FAR), 1, E.FENCED_MEMBER_EPOCH),
        (_beat(id, UNKNOWN, epoch), 1, E.UNKNOWN_MEMBER_ID),
        (_beat(id, UNKNOWN, -1), 1, E.UNKNOWN_MEMBER_ID),
        (_beat(id, UNKNOWN, epoch, instance_id=UNKNOWN), 1, E.UNKNOWN_MEMBER_ID),
        (commit_request(id, commit, generation=epoch + FAR, member_id=member), 9, E.STALE_MEMBER_EPOCH),
        (commit_request(id, commit, generation=epoch + FAR, member_id=member), 8, E.UNSUPPORTED_VERSION),
        (commit_request(id, commit, generation=epoch, member_id=UNKNOWN), 9, E.UNKNOWN_MEMBER_ID),
        (fetch_offsets_request({id: None}, member_id=member, member_epoch=epoch + FAR), 9, E.STALE_MEMBER_EPOCH),
        (HeartbeatRequest(group_id=id, generation_id=epoch, member_id=UNKNOWN), 4, E.UNKNOWN_MEMBER_ID),
        (JoinGroupRequest(group_id=id, session_timeout_ms=1_000, rebalance_timeout_ms=500, member_id="",
                          protocol_type="other", protocols=[
                              JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]), 9,
         E.INCONSISTENT_GROUP_PROTOCOL),
    ]  # fmt: skip
    return [(Question(body, version, number), code) for body, version, code in cases]


# ---- what is refused to every client


def refused_requests(client: Inspector) -> Chapter:
    """Requests that no state of any group could grant, and requests about a group that is nowhere."""
    number, _ = client.group_shard()
    topic, name = client.cluster.inputs()[0][0], client.scratch
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")

    def join(**change: Any) -> JoinGroupRequest:
        usual: dict[str, Any] = {
            "group_id": f"{name}-joins", "session_timeout_ms": 1_000, "rebalance_timeout_ms": 500, "member_id": "",
            "protocol_type": "consumer", "protocols": [protocol],
        }  # fmt: skip
        return JoinGroupRequest(**changed(usual, **change))

    def beat(epoch: int = 0, group: str = name, member: str = "member", **change: Any) -> Any:
        usual: dict[str, Any] = {
            "rebalance_timeout_ms": 500, "subscribed_topic_names": [topic], "topic_partitions": []
        }  # fmt: skip
        return _beat(group, member, epoch, **changed(usual, **change))

    owned = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=client.topic_id(topic), partitions=[0])
    cases: list[tuple[Any, int, E]] = [
        (join(session_timeout_ms=99), 9, E.INVALID_SESSION_TIMEOUT),
        (join(session_timeout_ms=1_800_001), 9, E.INVALID_SESSION_TIMEOUT),
        (join(group_id=""), 9, E.INVALID_GROUP_ID),
        (join(member_id=UNKNOWN), 9, E.UNKNOWN_MEMBER_ID),
        (join(protocols=[]), 9, E.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type=""), 9, E.INCONSISTENT_GROUP_PROTOCOL),
        (HeartbeatRequest(group_id=name, generation_id=1, member_id=UNKNOWN), 4, E.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest(group_id="", generation_id=1, member_id=UNKNOWN), 4, E.INVALID_GROUP_ID),
        (SyncGroupRequest(group_id=name, generation_id=1, member_id=UNKNOWN), 4, E.UNKNOWN_MEMBER_ID),
        (LeaveGroupRequest(group_id="", member_id=UNKNOWN), 2, E.INVALID_GROUP_ID),
        (LeaveGroupRequest(group_id=name, member_id=UNKNOWN), 2, E.UNKNOWN_MEMBER_ID),
        (DeleteGroupsRequest(groups_names=[name]), 2, E.GROUP_ID_NOT_FOUND),
        (delete_offsets_request(name, [(topic, 0)]), 0, E.GROUP_ID_NOT_FOUND),
        (commit_request(name, {(topic, 0): 0}, generation=1, member_id=UNKNOWN), 8, E.ILLEGAL_GENERATION),
        (commit_request(name, {(topic, 0): 0}, generation=1, member_id=UNKNOWN), 9, E.GROUP_ID_NOT_FOUND),
        (commit_request(name, {(NOWHERE, 0): 0}), 8, E.UNKNOWN_TOPIC_OR_PARTITION),
        (commit_request(name, {(topic, 99): 0}), 8, E.UNKNOWN_TOPIC_OR_PARTITION),
        (commit_request(name, {(Topic(NOWHERE, NO_UUID, 1), 0): 0}), 10, E.UNKNOWN_TOPIC_ID),
        (commit_request(name, {(topic, 0): Committed(0, "m" * 4_097)}), 8, E.OFFSET_METADATA_TOO_LARGE),
        (FindCoordinatorRequest(coordinator_keys=[name], key_type=3), 4, E.INVALID_REQUEST),
        (beat(member=""), 1, E.INVALID_REQUEST),
        (beat(group=" "), 1, E.INVALID_REQUEST),
        (beat(instance_id=""), 1, E.INVALID_REQUEST),
        (beat(rack_id=""), 1, E.INVALID_REQUEST),
        (beat(rebalance_timeout_ms=-1), 1, E.INVALID_REQUEST),
        (beat(topic_partitions=[owned]), 1, E.INVALID_REQUEST),
        (beat(topic_partitions=None), 1, E.INVALID_REQUEST),
        (beat(subscribed_topic_names=None), 1, E.INVALID_REQUEST),
        (beat(server_assignor="no-such-assignor"), 1, E.UNSUPPORTED_ASSIGNOR),
        (beat(subscribed_topic_names=None, subscribed_topic_regex="("), 1, E.INVALID_REGULAR_EXPRESSION),
        (beat(-2), 1, E.INVALID_REQUEST),
        (beat(-3, instance_id=UNKNOWN), 1, E.INVALID_REQUEST),
        (beat(1), 1, E.GROUP_ID_NOT_FOUND),
        (beat(-1), 1, E.GROUP_ID_NOT_FOUND),
    ]  # fmt: skip
    yield from refusals([(Question(body, version, number), code) for body, version, code in cases])


# ---- groups of our own


def offsets_of_a_group_without_members(client: Inspector) -> Chapter:
    """Offsets are committed, fetched, deleted one by one, and go with their group."""
    number, _ = client.group_shard()
    name, keys = client.scratch, client.cluster.inputs()
    committed = {key: Committed(index + 7, f"note {index}") for index, key in enumerate(keys)}
    yield from refusals([(Question(commit_request(name, committed), 8, number), E.NONE)])
    answer = yield Question(ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"]), 5, number)
    require(name in {each.group_id for each in answer.groups}, f"{name} is not listed as empty")
    kept = {key: (each.offset, each.metadata or "") for key, each in committed.items()}
    answer = yield Question(fetch_offsets_request({name: None}), 8, number)
    require_same(f"offsets of {name}", _fetched(answer.groups[0].topics), kept)
    yield from refusals([(Question(delete_offsets_request(name, [keys[0]]), 0, number), E.NONE)])
    del kept[keys[0]]
    answer = yield Question(fetch_offsets_request({name: None}), 8, number)
    require_same(f"offsets of {name} after one was deleted", _fetched(answer.groups[0].topics), kept)
    yield from refusals(
        [
            (Question(delete_offsets_request(name, [(NOWHERE, 0)]), 0, number), E.UNKNOWN_TOPIC_OR_PARTITION),
            (Question(DeleteGroupsRequest(groups_names=[name]), 2, number), E.NONE),
            (Question(DeleteGroupsRequest(groups_names=[name]), 2, number), E.GROUP_ID_NOT_FOUND),
        ]
    )
    answer = yield Question(fetch_offsets_request({name: None}), 8, number)
    require_same(f"offsets of {name}, which is deleted", _fetched(answer.groups[0].topics), {})
    answer = yield Question(ListGroupsRequest(), 5, number)
    require(name not in {each.group_id for each in answer.groups}, f"{name} is listed, and is deleted")


def patterns(client: Inspector) -> Chapter:
    """A member that subscribes by a pattern is given all partitions of the topics that match as a whole, and no others."""
    number, _ = client.group_shard()
    for turn in range(PATTERNS_A_RUN):
        pattern = PATTERNS[(client.cluster.schedule.seed * PATTERNS_A_RUN + turn) % len(PATTERNS)]
        yield from _one_pattern(client, number, f"{client.scratch}-{turn}", pattern)


def _one_pattern(client: Inspector, number: int, group: str, pattern: str) -> Part:
    python = OF_RE2.get(pattern, pattern)
    joins = _beat(group, "member", 0, rebalance_timeout_ms=5_000, subscribed_topic_regex=pattern, topic_partitions=[])
    if python is None:
        yield from refusals([(Question(joins, 1, number), E.INVALID_REGULAR_EXPRESSION)])
        return
    answer = yield Question(joins, 1, number)
    require_same(f"joining by {pattern}", answer.error_code, E.NONE)
    known = _topics(client, number)
    expected = {name: count for name, count in known.items() if re.fullmatch(python, name)}
    found = _given(client, number, answer)
    for _ in range(5):  # it is matched right after a heartbeat, and given with the next
        if found == expected and answer.member_epoch > 1:
            break
        answer = yield Question(_beat(group, "member", answer.member_epoch), 1, number)
        require_same(f"a heartbeat after {pattern}", answer.error_code, E.NONE)
        if answer.assignment is not None:
            found = _given(client, number, answer)
    require_same(f"topics that match {pattern}", found, expected)
    yield from refusals([(Question(_beat(group, "member", -1), 1, number), E.NONE)])
    yield from refusals([(Question(DeleteGroupsRequest(groups_names=[group]), 2, number), E.NONE)])


def _topics(client: Inspector, number: int) -> Mapping[str, int]:
    return {name: len(topic.partitions) for name, topic in client.node(number).image.topics.items()}


def _given(client: Inspector, number: int, answer: Any) -> dict[str, int]:
    """How many partitions of which topic a heartbeat's answer gives."""
    image = client.node(number).image
    topics = answer.assignment.topic_partitions if answer.assignment is not None else ()
    return {str(image.topic_name(each.topic_id)): len(each.partitions) for each in topics}


def a_classic_group(client: Inspector) -> Chapter:
    """One member joins, leads, is given what it assigns to itself, leaves; the group is empty, and can be deleted."""
    number, _ = client.group_shard()
    name, key = client.scratch, client.cluster.inputs()[0]
    subscription = encode_subscription([key[0]])
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)
    joining: dict[str, Any] = {
        "group_id": name, "session_timeout_ms": 5_000, "rebalance_timeout_ms": 500, "protocol_type": "consumer",
        "protocols": [protocol],
    }  # fmt: skip
    answer = yield Question(JoinGroupRequest(**joining, member_id=""), 9, number)
    require_same("the first join", answer.error_code, E.MEMBER_ID_REQUIRED)
    member = answer.member_id
    answer = yield Question(JoinGroupRequest(**joining, member_id=member), 9, number)
    joined = (answer.error_code, answer.leader, [each.member_id for each in answer.members], answer.protocol_name)
    require_same("the second join", joined, (E.NONE, member, [member], "range"))
    generation = answer.generation_id
    share = encode_assignment([key])
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=share)
    of: dict[str, Any] = {"group_id": name, "generation_id": generation, "member_id": member}
    answer = yield Question(
        SyncGroupRequest(**of, protocol_type="consumer", protocol_name="range", assignments=[assignment]), 5, number
    )
    require_same("the assignment", (answer.error_code, bytes(answer.assignment)), (E.NONE, share))
    answer = yield Question(DescribeGroupsRequest(groups=[name]), 6, number)
    described = answer.groups[0]
    shown = (
        described.group_state,
        described.protocol_data,
        [bytes(each.member_assignment) for each in described.members],
    )
    require_same(f"{name} described", shown, ("Stable", "range", [share]))
    leaves = LeaveGroupRequest(group_id=name, members=[LeaveGroupRequest.MemberIdentity(member_id=member)])
    yield from refusals(
        [
            (Question(HeartbeatRequest(**of), 4, number), E.NONE),
            (Question(DeleteGroupsRequest(groups_names=[name]), 2, number), E.NON_EMPTY_GROUP),
            (Question(delete_offsets_request(name, [key]), 0, number), E.GROUP_SUBSCRIBED_TO_TOPIC),
            (Question(commit_request(name, {key: 3}, generation=generation, member_id=member), 8, number), E.NONE),
            (Question(commit_request(name, {key: 3}), 8, number), E.UNKNOWN_MEMBER_ID),
            (Question(leaves, 5, number), E.NONE),
            (Question(HeartbeatRequest(**of), 4, number), E.UNKNOWN_MEMBER_ID),
            (Question(commit_request(name, {key: 4}), 8, number), E.NONE),
        ]
    )
    answer = yield Question(fetch_offsets_request({name: None}), 8, number)
    require_same(f"offsets of {name}", _fetched(answer.groups[0].topics), {key: (4, "")})
    yield from refusals([(Question(DeleteGroupsRequest(groups_names=[name]), 2, number), E.NONE)])


AMONG_MEMBERS = (listed_groups, described_groups, fetched_offsets, refused_to_members)
"""The chapters for stable groups with members."""
ALONE = (refused_requests, offsets_of_a_group_without_members, a_classic_group, patterns, listed_groups)
"""The chapters with groups of the inspector's own."""
