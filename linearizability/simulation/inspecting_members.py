"""Groups of the inspector's own, whose members it is: two members of the new protocol share and give up, a static member comes
back, and a group changes its protocol under its members (KIP-848, KIP-345; CGH-*, GRP-20, GRP-21); see `inspecting`.
"""

from __future__ import annotations

from typing import Any

from linearizability.client.group_member import (
    assigned_partitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
    owned_partitions,
)
from linearizability.client.requests import commit_request, delete_offsets_request, fetch_offsets_request
from linearizability.simulation.client import Key
from linearizability.simulation.inspecting import (
    Chapter,
    Differs,
    Inspector,
    Part,
    Question,
    refusals,
    require,
    require_same,
)
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.list_groups import ListGroupsRequest
from reference.protocol.messages.sync_group import SyncGroupRequest

JOINING, LEAVING, LEAVING_STATIC = 0, -1, -2
MOST_BEATS = 30
"""After so many heartbeats of each member all of them have what they are to have."""
PATIENT_MS = 10_000
"""A rebalance timeout that is longer than any delay of a healed network."""
CLASSIC, NEW = 0, 1
"""Types of members, as ConsumerGroupDescribe has them."""


class _Member:
    """A member of the new protocol: takes what it is given, and gives up what is taken from it."""

    def __init__(
        self,
        client: Inspector,
        number: int,
        group: str,
        id: str,
        instance: str | None = None,
        is_traced: bool = False,
    ) -> None:
        """`is_traced`: the specification knows all that its group does."""
        self._client, self._number, self._is_traced = client, number, is_traced
        self.group, self.id, self.instance = group, id, instance
        self.epoch = JOINING
        self.owned: frozenset[Key] = frozenset()

    def beat(self, epoch: int | None = None, is_full: bool = False) -> Part:
        """Send one heartbeat and apply its response."""
        at = self.epoch if epoch is None else epoch
        joins, topics = at == JOINING, sorted({topic for topic, _ in self._client.cluster.inputs()})
        owned = owned_partitions((self._client.topic_id(topic), index) for topic, index in sorted(self.owned))
        body = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=at,
            instance_id=self.instance,
            rebalance_timeout_ms=5_000 if joins or is_full else -1,
            subscribed_topic_names=topics if joins or is_full else None,
            topic_partitions=[] if joins else owned,
        )
        counts = self._client.world.counts
        traced = counts["action Heartbeat"]
        answer = yield Question(body, 1, self._number)
        require_same(f"a heartbeat of {self.id} in epoch {at}", answer.error_code, E.NONE)
        if self._is_traced and at >= JOINING:
            require(counts["action Heartbeat"] > traced, f"a heartbeat of {self.id} in epoch {at} is not traced")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = {self._client.topic_id(topic): topic for topic in topics}
            self.owned = frozenset((names[id], index) for id, index in assigned_partitions(answer))
        return answer


def _settle(members: list[_Member], everything: set[Key]) -> Part:
    """Let members send heartbeats in turn until they own each partition once, in one epoch."""
    for _ in range(MOST_BEATS):
        for member in members:
            yield from member.beat()
        owned = sorted(key for member in members for key in member.owned)
        if owned == sorted(everything) and len({member.epoch for member in members}) == 1:
            return
    raise Differs(f"{ {member.id: (member.epoch, sorted(member.owned)) for member in members} } own not {everything}")


def two_members(client: Inspector) -> Chapter:
    """A second member gets its share once the first has given it up; who lost an answer says its former epoch once more."""
    number, _ = client.group_shard()
    everything, group = {*client.cluster.inputs()}, client.scratch
    first, second = (_Member(client, number, group, id, is_traced=True) for id in ("first", "second"))
    yield from first.beat()
    yield from _settle([first], everything)
    yield from second.beat()
    require_same("what the second member has at once", sorted(second.owned), list[Key]())
    yield from _settle([first, second], everything)
    sizes = sorted(len(member.owned) for member in (first, second))
    require_same("how the shares differ", sizes[1] - sizes[0] <= len({topic for topic, _ in everything}), True)
    answer = yield Question(ConsumerGroupDescribeRequest(group_ids=[group]), 1, number)
    shown = {each.member_id: (each.member_epoch, each.member_type) for each in answer.groups[0].members}
    require_same(f"{group} described", shown, {each.id: (each.epoch, NEW) for each in (first, second)})
    key = min(everything)
    yield from refusals(
        [
            (
                Question(commit_request(group, {key: 5}, generation=first.epoch, member_id=first.id), 9, number),
                E.NONE,
            ),
            (
                Question(commit_request(group, {key: 6}, generation=first.epoch + 1, member_id=first.id), 9, number),
                E.STALE_MEMBER_EPOCH,
            ),
            (Question(commit_request(group, {key: 7}), 8, number), E.UNKNOWN_MEMBER_ID),
            (Question(DeleteGroupsRequest(groups_names=[group]), 2, number), E.NON_EMPTY_GROUP),
            (Question(delete_offsets_request(group, [key]), 0, number), E.GROUP_SUBSCRIBED_TO_TOPIC),
        ]
    )
    before = first.epoch
    yield from second.beat(LEAVING)
    yield from first.beat()
    if first.epoch > before:
        yield from first.beat(before)  # the answer was lost, and nothing was taken
        require_same("the epoch after the former one was said again", first.epoch > before, True)
    yield from _settle([first], everything)
    yield from first.beat(is_full=True)
    require_same("all of it after a full heartbeat", first.owned, frozenset(everything))
    yield from first.beat(LEAVING)
    answer = yield Question(fetch_offsets_request({group: [key]}), 8, number)
    place = answer.groups[0].topics[0].partitions[0]
    require_same(f"what {group} has committed", place.committed_offset, 5)
    yield from _deleted(number, group)


def _deleted(number: int, group: str) -> Part:
    yield from refusals([(Question(DeleteGroupsRequest(groups_names=[group]), 2, number), E.NONE)])


def a_static_member(client: Inspector) -> Chapter:
    """An instance that leaves for now keeps its share for the member that comes in its place, and for no other."""
    number, _ = client.group_shard()
    everything, group = {*client.cluster.inputs()}, client.scratch
    first = _Member(client, number, group, "first", "instance")
    yield from first.beat()
    yield from _settle([first], everything)
    join: dict[str, Any] = {
        "group_id": group,
        "rebalance_timeout_ms": 500,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    rival = ConsumerGroupHeartbeatRequest(**join, member_id="rival", member_epoch=JOINING, instance_id="instance")
    stranger = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="rival", member_epoch=first.epoch, instance_id="instance"
    )
    yield from refusals(
        [
            (Question(rival, 1, number), E.UNRELEASED_INSTANCE_ID),
            (Question(stranger, 1, number), E.FENCED_INSTANCE_ID),
        ]
    )
    yield from first.beat(LEAVING_STATIC)
    second = _Member(client, number, group, "second", "instance")
    yield from second.beat()
    yield from _settle([second], everything)
    yield from refusals([(Question(stranger, 1, number), E.FENCED_INSTANCE_ID)])
    yield from second.beat(LEAVING)
    yield from _deleted(number, group)


# ---- the classic protocol


class _Classic:
    """The only classic member of its group."""

    def __init__(self, client: Inspector, number: int, group: str, instance: str | None = None) -> None:
        self._client, self._number, self.group, self.instance = client, number, group, instance
        self.id, self.generation, self.protocol = "", -1, ""
        self.owned: frozenset[Key] = frozenset()

    def join(self, rebalance_timeout_ms: int = 500) -> Part:
        """Join, once more if an id is given first, and take the assignment. A leader assigns itself everything."""
        topics = sorted({topic for topic, _ in self._client.cluster.inputs()})
        offer = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription(topics))
        answer: Any = None
        for _ in range(2):
            body = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=5_000,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocols=[offer],
            )
            answer = yield Question(body, 9, self._number)
            self.id = answer.member_id
            if answer.error_code != E.MEMBER_ID_REQUIRED:
                break
        require_same("a classic member that joins", (answer.error_code, answer.protocol_name), (E.NONE, "range"))
        self.generation = answer.generation_id
        shares: list[SyncGroupRequest.SyncGroupRequestAssignment] = []
        if answer.leader == self.id and not answer.skip_assignment:
            share = encode_assignment(sorted(self._client.cluster.inputs()))
            shares = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.id, assignment=share)]
        yield from self.sync(shares)

    def sync(self, shares: list[SyncGroupRequest.SyncGroupRequestAssignment]) -> Part:
        body = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        answer = yield Question(body, 5, self._number)
        require_same("a classic member that syncs", answer.error_code, E.NONE)
        self.owned = frozenset(decode_assignment(bytes(answer.assignment)))

    def beat(self) -> Part:
        """Return whether the group asks it to join again."""
        body = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance
        )
        answer = yield Question(body, 4, self._number)
        code = answer.error_code
        require_same("a classic member's heartbeat", code in (E.NONE, E.REBALANCE_IN_PROGRESS), True)
        return code == E.REBALANCE_IN_PROGRESS

    def leave(self) -> Part:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        body = LeaveGroupRequest(group_id=self.group, members=[identity])
        yield from refusals([(Question(body, 5, self._number), E.NONE)])


def a_new_group(client: Inspector) -> Chapter:
    """A new group waits for more members as long as some join, and no longer than group.initial.rebalance.delay.ms without."""
    number, _ = client.group_shard()
    only = _Classic(client, number, client.scratch)
    began_ms = client.world.now_ms
    yield from only.join(PATIENT_MS)
    took_ms = client.world.now_ms - began_ms
    require(took_ms < PATIENT_MS // 2, f"{took_ms} ms until the first generation of a group of one member")
    yield from only.leave()
    yield from _deleted(number, only.group)


def a_replaced_classic_member(client: Inspector) -> Chapter:
    """Who joins under an instance id takes the member's place and share in the same generation; the other is fenced."""
    number, _ = client.group_shard()
    first = _Classic(client, number, client.scratch, "instance")
    yield from first.join()
    second = _Classic(client, number, first.group, "instance")
    yield from second.join()
    require_same("the generation after a replacement", second.generation, first.generation)
    require_same("the share after a replacement", second.owned, first.owned)
    body = HeartbeatRequest(
        group_id=first.group, generation_id=first.generation, member_id=first.id, group_instance_id="instance"
    )
    yield from refusals([(Question(body, 4, number), E.FENCED_INSTANCE_ID)])
    yield from second.leave()
    yield from _deleted(number, first.group)


def a_group_that_changes_its_protocol(client: Inspector) -> Chapter:
    """A member of the new protocol makes a classic group a consumer group, whose classic member stays in it and shares; when the
    last member of the new protocol leaves, the group is a classic one again."""
    number, _ = client.group_shard()
    everything, group = {*client.cluster.inputs()}, client.scratch
    classic, new = _Classic(client, number, group), _Member(client, number, group, "new")
    yield from classic.join()
    require_same("what the classic member has", classic.owned, frozenset(everything))
    yield from _require_type(number, group, "classic")
    yield from new.beat()
    require_same("what the new member has at once", sorted(new.owned), list[Key]())
    yield from _require_type(number, group, "consumer")
    for _ in range(MOST_BEATS):
        is_called = yield from classic.beat()
        if is_called:
            yield from classic.join()
        yield from new.beat()
        require_same("what both have at the same time", sorted(classic.owned & new.owned), list[Key]())
        owned = sorted([*classic.owned, *new.owned])
        if owned == sorted(everything) and classic.generation == new.epoch:
            break
    require_same("what both have", sorted([*classic.owned, *new.owned]), sorted(everything))
    require_same("the epoch of both", classic.generation, new.epoch)
    answer = yield Question(ConsumerGroupDescribeRequest(group_ids=[group]), 1, number)
    types = {each.member_id: each.member_type for each in answer.groups[0].members}
    require_same("the members' types", types, {classic.id: CLASSIC, new.id: NEW})
    key = min(everything)
    commit = commit_request(group, {key: 9}, generation=classic.generation, member_id=classic.id)
    yield from refusals([(Question(commit, 8, number), E.NONE)])
    yield from new.beat(LEAVING)
    yield from _require_type(number, group, "classic")
    for _ in range(MOST_BEATS):
        is_called = yield from classic.beat()
        if is_called:
            yield from classic.join()
        if {*classic.owned} == everything:
            break
    require_same("what the classic member has again", classic.owned, frozenset(everything))
    answer = yield Question(fetch_offsets_request({group: [key]}), 8, number)
    place = answer.groups[0].topics[0].partitions[0]
    require_same(f"what {group} has committed", place.committed_offset, 9)
    yield from classic.leave()
    yield from _deleted(number, group)


def _require_type(number: int, group: str, type: str) -> Part:
    answer = yield Question(ListGroupsRequest(types_filter=[type]), 5, number)
    require_same(f"whether {group} is a {type} group", group in {each.group_id for each in answer.groups}, True)


CHAPTERS = (two_members, a_static_member, a_new_group, a_replaced_classic_member, a_group_that_changes_its_protocol)
