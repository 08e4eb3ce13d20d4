"""Members of the classic and of the new protocol in one group, and groups that change their type alive. (CGH-17)"""

from __future__ import annotations

import pytest

from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_member import Client as Sender
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tests.coordinator.classic_consumer import REBALANCE_MS, SESSION_MS, Classic
from tests.coordinator.consumer_room import Client, Room, settle

FOO = [("foo", partition) for partition in range(4)]


def a_classic_group(room: Room, instance: str | None = None) -> Classic:
    """One classic member that owns everything."""
    member = Classic(room, instance=instance)
    member.join()
    assert member.sync((member.id, FOO)).error_code == ErrorCode.NONE
    return member


def go_on(room: Room, classic: Classic, new: Client, rounds: int = 6) -> None:
    for _ in range(rounds):
        room.pass_time(1_000)
        classic.follow()
        new.beat()
        assert classic.owned.isdisjoint(new.names())


def test_a_new_member_joins_a_classic_group() -> None:
    """CGH-34: the classic member keeps what it owns until it is asked to join again."""
    room = Room(foo=4)
    old = a_classic_group(room)
    new = Client(room, "n", topics=["foo"])
    assert new.join().error_code == ErrorCode.NONE
    assert new.owned == set()
    assert room.group().members[old.id].classic is not None
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    go_on(room, old, new)
    assert (len(old.owned), len(new.owned)) == (2, 2)
    assert room.group().state_name == "Stable"
    room.fail_over()
    assert old.beat() == ErrorCode.NONE, "the next coordinator knows what the member speaks"


def test_members_that_wait_in_a_classic_group_have_to_join_again() -> None:
    room = Room(foo=4)
    first = a_classic_group(room)
    second = Classic(room)
    second._ask_to_join()
    waiting: object = object()
    room.answers.clear()
    request = JoinGroupRequest(
        group_id="g",
        member_id=first.id,
        protocol_type="consumer",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(
                name="range", metadata=b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=["foo"]), 0)
            )
        ],
    )
    room.shard.join(request, 9, Sender("c", "/h"), waiting, room.now)
    assert room.answers == {}, "a second one is expected"
    assert Client(room, "n", topics=["foo"]).join().error_code == ErrorCode.NONE
    reported = room.answers[waiting]
    assert isinstance(reported, JoinGroupResponse)
    assert reported.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_joins_and_the_last_new_one_leaves() -> None:
    """CGH-35."""
    room = Room(foo=4)
    new, old = Client(room, "n", topics=["foo"]), Classic(room)
    new.join()
    answer = old.join()
    assert (answer.error_code, answer.protocol_type, answer.protocol_name, answer.leader) == (
        0,
        "consumer",
        "range",
        "",
    )
    old.sync()
    go_on(room, old, new)
    assert (len(old.owned), len(new.owned)) == (2, 2)
    new.leave()
    group = room.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    answer = old.join()
    assert (answer.leader, answer.generation_id) == (old.id, old.generation)
    assert old.sync((old.id, FOO)).error_code == ErrorCode.NONE
    assert old.owned == set(FOO)
    room.pass_time(SESSION_MS)
    assert group.is_empty, "the classic group's own timers run"


def test_a_static_member_goes_back_to_the_classic_protocol() -> None:
    """The last new member comes back as a classic one: the group is classic, and no member is bothered."""
    room = Room(foo=4)
    static = Client(room, "n", instance="i", topics=["foo"])
    static.join()
    static.leave(-2)
    old = Classic(room, instance="i", owned=set())
    answer = old.join()
    assert answer.error_code == ErrorCode.NONE
    assert isinstance(room.groups["g"], ClassicGroup)
    assert old.sync().error_code == ErrorCode.NONE
    assert old.owned == set(FOO)


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_the_migration_policy(policy: str) -> None:
    """CGH-37."""
    settings = ConsumerGroupSettings(assignment_interval_ms=0, migration_policy=policy)
    room = Room(settings, foo=4)
    a_classic_group(room)
    is_upgraded = Client(room, "n", topics=["foo"]).join().error_code == ErrorCode.NONE
    assert is_upgraded == (policy in ("upgrade", "bidirectional"))
    room = Room(settings, foo=4)
    new, old = Client(room, "n", topics=["foo"]), Classic(room)
    new.join()
    is_mixed = old.join().error_code == ErrorCode.NONE
    assert is_mixed == (policy != "disabled")
    new.leave()
    is_classic = isinstance(room.groups["g"], ClassicGroup)
    assert is_classic == (is_mixed and policy in ("downgrade", "bidirectional"))


def test_groups_that_cannot_be_upgraded() -> None:
    """CGH-36: of another type, or with what only a custom assignor understands."""
    room = Room(foo=4)
    member = a_classic_group(room)
    group = room.groups["g"]
    assert isinstance(group, ClassicGroup)
    custom = ConsumerProtocolAssignment(user_data=b"mine")
    for break_it in ("type", "assignment"):
        if break_it == "type":
            group.protocol_type = "connect"
        else:
            group.protocol_type = "consumer"
            group.members[member.id].assignment = b"\x00\x01" + encode(custom, 1)
        assert Client(room, "n", topics=["foo"]).join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert room.groups["g"] is group


def test_who_may_not_join() -> None:
    """CGH-17."""
    room = Room(foo=4)
    new, old = Client(room, "n", topics=["foo"]), Classic(room)
    new.join()
    old.join()
    assert Classic(room, protocol="sticky").join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Classic(room, id="x").join().error_code == ErrorCode.NONE, "an id is as good as any, as in Kafka"
    assert Classic(room, id="y", instance="i").join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_words_of_the_classic_protocol_that_are_wrong() -> None:
    """CGH-38."""
    room = Room(foo=4)
    new, old = Client(room, "n", topics=["foo"]), Classic(room)
    new.join()
    old.join()
    pretender = Classic(room, id="n", generation=new.epoch)
    assert pretender.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert pretender.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    old.generation -= 1
    assert old.beat() == ErrorCode.ILLEGAL_GENERATION
    assert old.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    old.generation += 1
    old.protocol = "sticky"
    assert old.sync().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Classic(room, id="x").leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert pretender.leave() == ErrorCode.NONE, "an administrator may remove a member of either protocol"


def test_a_classic_member_that_does_not_answer_is_fenced() -> None:
    """CGH-13: it has its own session timeout, the rebalance timeout to join, and as long to sync."""
    for silent_after in ("join", "sync", "call"):
        room = Room(foo=4)
        new, old = Client(room, "n", topics=["foo"]), Classic(room)
        new.join()
        old.join()
        if silent_after != "join":
            old.sync()
        if silent_after == "call":
            new.beat()
            third = Client(room, "t", topics=["foo"])
            third.join()
            assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        waited = SESSION_MS if silent_after != "call" else REBALANCE_MS
        for _ in range(waited // 1_000 - 1):
            room.pass_time(1_000)
            new.beat()
            if silent_after == "call":
                old.beat()
        assert old.id in room.group().members
        room.pass_time(1_000)
        assert old.id not in room.group().members, silent_after


def test_a_classic_member_becomes_a_new_one() -> None:
    """A static member that is restarted with the new protocol keeps its place."""
    room = Room(foo=4)
    old = a_classic_group(room, instance="i")
    new = Client(room, "n", instance="i", topics=["foo"])
    assert new.join().error_code == ErrorCode.NONE
    assert new.names() == set(FOO)
    assert room.group().members["n"].classic is None
    assert old.beat() == ErrorCode.FENCED_INSTANCE_ID
    settle(room, [new], 2)
    assert room.group().state_name == "Stable"


def test_commits_of_classic_members_name_their_generation() -> None:
    """CGH-14."""
    room = Room(foo=4)
    new, old = Client(room, "n", topics=["foo"]), Classic(room)
    new.join()
    old.join()
    group = room.group()
    assert group.check_commit(old.id, None, old.generation, 8, False) is None
    with pytest.raises(Exception) as refused:
        group.check_commit(old.id, None, old.generation + 1, 8, False)
    assert getattr(refused.value, "code", None) == ErrorCode.ILLEGAL_GENERATION
