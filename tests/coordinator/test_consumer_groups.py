"""Consumer groups (KIP-848): the steps of the specification, and cases that the drawn steps beside Kafka do not reach.

The ids are the catalogue's. (CGH-*) `test_groups_beside_kafka` compares all else, as epochs that fence, static members and
groups of both protocols.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from linearizability.client.group_member import encode_subscription
from reference.coordinator.consumer_group_records import _record, member_record, partition_metadata_tombstone
from reference.coordinator.consumer_heartbeat_check import check_request
from reference.coordinator.consumer_member import ClassicMember, MemberState
from reference.coordinator.consumer_timers import RETRY_MS
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.consumer_group_partition_metadata_record import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from tests.coordinator.consumer_room import REBALANCE_TIMEOUT_MS, Client, Room, settle

SESSION_MS = 45_000


def joining(**changes: object) -> ConsumerGroupHeartbeatRequest:
    fields = {
        "group_id": "g",
        "member_id": "a",
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "subscribed_topic_names": ["foo"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**{**fields, **changes})


SOMETHING = [ConsumerGroupHeartbeatRequest.TopicPartitions()]

INVALID = {
    "CGH-01 group": joining(group_id=""),
    "CGH-01 blank group": joining(group_id="  "),
    "CGH-01 group of control characters": joining(group_id="\t\x00"),
    "CGH-01 instance": joining(instance_id=""),
    "CGH-01 rack": joining(rack_id=""),
    "CGH-02 rebalance timeout": joining(rebalance_timeout_ms=-1),
    "CGH-02 owned": joining(topic_partitions=SOMETHING),
    "CGH-02 owned null": joining(topic_partitions=None),
    "CGH-02 subscription": joining(subscribed_topic_names=None),
    "CGH-03 member id": joining(member_id=""),
    "CGH-03 member id later": joining(member_epoch=1, member_id=""),
    "CGH-03 epoch": joining(member_epoch=-3),
    "CGH-03 static leave": joining(member_epoch=-2),
}


@pytest.mark.parametrize("request_", INVALID.values(), ids=INVALID.keys())
def test_requests_that_are_refused_before_they_are_looked_at(request_: ConsumerGroupHeartbeatRequest) -> None:
    room = Room(foo=1)
    assert room.beat(request_).error_code == ErrorCode.INVALID_REQUEST
    assert room.log == []


def test_an_unknown_assignor_is_refused() -> None:
    """CGH-04."""
    answer = Room(foo=1).beat(joining(server_assignor="sticky"))
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."


def test_an_assignor_that_only_the_log_knows_is_the_default_one() -> None:
    """As in a folder of a broker that had an assignor of its own."""
    room = Room(foo=2)
    client = Client(room, "a", topics=["foo"])
    client.join()
    member = replace(room.group().members["a"], assignor="homemade")
    room.log.append(member_record("g", member))
    room.fail_over()
    other = Client(room, "b", topics=["foo"])
    settle(room, [client, other])
    assert client.names() | other.names() == {("foo", 0), ("foo", 1)}


def test_a_partition_metadata_record_of_an_earlier_release_is_removed() -> None:
    """Before 4.1 a group had a record of its topics' partitions; the next epoch of the group ends it, once."""
    room = Room(foo=1)
    client = Client(room, "a", topics=["foo"])
    client.join()
    key, _ = partition_metadata_tombstone("g")
    room.log.append(_record(ConsumerGroupPartitionMetadataKey(group_id="g"), ConsumerGroupPartitionMetadataValue()))
    room.fail_over()
    assert room.group().has_partition_metadata
    other = Client(room, "b", topics=["foo"])
    settle(room, [client, other])
    assert [each for each in room.log if each == partition_metadata_tombstone("g")] == [(key, None)]


def test_a_no_break_space_is_a_name() -> None:
    check_request(joining(group_id="\u00a0", instance_id="\u00a0", rack_id="\u00a0"), 1, ["uniform"])


@pytest.mark.step("groups", "JoinGroup", "UpdateTarget")
def test_the_first_heartbeat_assigns_all_partitions() -> None:
    """CGH-05."""
    room = Room(foo=2)
    client = Client(room, "a", topics=["foo"])
    answer = client.join()
    assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, "a", 5000)
    assert answer.member_epoch == 2, "the group's first epoch is 1, and the subscription raises it"
    assert client.names() == {("foo", 0), ("foo", 1)}
    assert room.group().state_name == "Stable"


@pytest.mark.step("groups", "JoinGroup", "Heartbeat")
def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    """CGH-09, CGH-18."""
    room = Room(foo=4)
    first, second = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    first.join()
    second.join()
    assert second.names() == set()
    assert room.group().state_name == "Reconciling"
    reported = first.beat()
    assert reported.member_epoch < second.epoch, "a member that is to revoke stays in its epoch"
    assert len(first.owned) == 2
    second.beat()
    assert second.names() == set(), "not before the first member reports that it has revoked them"
    assert first.beat().member_epoch == second.epoch
    second.beat()
    assert first.names() | second.names() == {("foo", partition) for partition in range(4)}
    assert room.group().state_name == "Stable"


@pytest.mark.step("groups", "Heartbeat")
def test_a_heartbeat_without_owned_partitions_revokes_none() -> None:
    """CGH-09."""
    room = Room(foo=2)
    first, second = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    first.join()
    second.join()
    first.beat()
    first.beat(owned=False)
    second.beat()
    assert second.names() == set()


@pytest.mark.step("groups", "LeaveGroup")
def test_when_a_member_leaves_the_others_get_its_partitions() -> None:
    """CGH-10."""
    room = Room(foo=4)
    clients = [Client(room, name, topics=["foo"]) for name in "ab"]
    for client in clients:
        client.join()
    settle(room, clients)
    first, second = clients
    answer = first.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.assignment) == (0, "a", -1, None)
    second.beat()
    assert len(second.names()) == 4
    first.epoch = 3
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    second.leave()
    assert room.group().state_name == "Empty"


@pytest.mark.step("groups", "LoseMember")
def test_a_member_that_falls_silent_is_fenced() -> None:
    """CGH-13."""
    room = Room(foo=2)
    silent, living = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    silent.join()
    room.pass_time(SESSION_MS - 1)
    living.join()
    assert [*room.group().members] == ["a", "b"]
    room.pass_time(1)
    assert [*room.group().members] == ["b"]
    living.beat()
    assert len(living.names()) == 2
    assert silent.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.step("groups", "LoseMember")
def test_a_member_that_gives_nothing_up_is_fenced() -> None:
    """CGH-13."""
    room = Room(foo=2)
    stubborn, other = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    stubborn.join()
    kept = set(stubborn.owned)
    other.join()
    for _ in range(3):
        stubborn.owned = kept
        stubborn.beat()
        other.beat()
        room.pass_time(REBALANCE_TIMEOUT_MS // 3 - 1)
    assert "a" in room.group().members
    room.pass_time(3)
    assert "a" not in room.group().members


@pytest.mark.parametrize("is_classic", [False, True])
def test_a_new_coordinator_gives_a_member_its_rebalance_timeout_to_give_up_partitions(is_classic: bool) -> None:
    """Also a member of the classic protocol, which otherwise has other timers."""
    room = Room(foo=2)
    first, second = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    first.join()
    second.join()
    first.beat()
    member = room.group().members["a"]
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    if is_classic:
        room.log.append(
            member_record(
                "g", replace(member, classic=ClassicMember(SESSION_MS, (("range", encode_subscription(["foo"])),)))
            )
        )
    room.fail_over()
    assert (room.group().members["a"].classic is not None) == is_classic
    room.pass_time(REBALANCE_TIMEOUT_MS - 1)
    assert "a" in room.group().members
    room.pass_time(1)
    assert "a" not in room.group().members


def test_fetches_of_offsets_name_the_epoch_or_no_member() -> None:
    """CGH-14."""
    room = Room(foo=1)
    client = Client(room, "a", topics=["foo"])
    client.join()
    group = room.group()
    group.check_fetch(None, -1)
    group.check_fetch("a", client.epoch)
    for member, epoch, code in (("a", 1, ErrorCode.STALE_MEMBER_EPOCH), ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID)):
        with pytest.raises(KafkaError) as refused:
            group.check_fetch(member, epoch)
        assert refused.value.code == code


def test_the_fencing_of_a_silent_member_is_retried_after_a_failed_write() -> None:
    room = Room(foo=1)
    Client(room, "a", topics=["foo"]).join()

    def refuse(records: object, now: int) -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    room.now += SESSION_MS
    write, room.write = room.write, refuse
    room.consumer.tick(room.now)
    room.write = write
    assert "a" in room.group().members
    assert room.consumer.next_deadline() == room.now + RETRY_MS
    room.pass_time(RETRY_MS)
    assert "a" not in room.group().members


# ---- subscriptions


@pytest.mark.step("groups", "RaiseGroupEpoch")
def test_more_partitions_raise_the_epoch() -> None:
    """CGH-15."""
    room = Room(foo=1)
    client = Client(room, "a", topics=["foo"])
    client.join()
    epoch = room.group().epoch
    client.beat()
    room.topics.grow("foo", 3)
    room.consumer.topics_changed(["foo"], are_new=True)
    client.beat()
    assert room.group().epoch == epoch + 1
    assert len(client.names()) == 3


@pytest.mark.step("groups", "UpdateTarget")
def test_targets_are_made_at_most_once_an_interval() -> None:
    """CGH-15: group.consumer.assignment.interval.ms."""
    room = Room(ConsumerGroupSettings(assignment_interval_ms=1_000), foo=2)
    first, second = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    first.join()
    room.now += 999
    second.join()
    assert room.group().state_name == "Assigning"
    room.now += 1
    first.beat()
    assert room.group().state_name == "Reconciling"
