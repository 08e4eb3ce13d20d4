"""Consumer groups (KIP-848), told by what their members are answered. The ids are the catalogue's. (CGH-*)"""

from dataclasses import replace

import pytest

from linearizability.client.group_member import owned_partitions
from reference.coordinator.consumer_group_description import describe
from reference.coordinator.consumer_group_records import _record, member_record, partition_metadata_tombstone
from reference.coordinator.consumer_heartbeat_check import check_request
from reference.coordinator.consumer_timers import RETRY_MS
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from reference.protocol.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
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


def test_what_an_earlier_coordinator_wrote_of_partitions_is_removed() -> None:
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
def test_the_first_heartbeat_gives_everything() -> None:
    """CGH-05."""
    room = Room(foo=2)
    client = Client(room, "a", topics=["foo"])
    answer = client.join()
    assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, "a", 5000)
    assert answer.member_epoch == 2, "the group's first epoch is 1, and the subscription raises it"
    assert client.names() == {("foo", 0), ("foo", 1)}
    assert room.group().state_name == "Stable"


def test_the_broker_names_a_member_of_version_0() -> None:
    """CGH-05."""
    answer = Room(foo=1).beat(joining(member_id=""), version=0)
    assert (answer.error_code, len(answer.member_id or "")) == (0, 22), "a UUID as Kafka writes one down"


def test_what_is_owned_is_sent_once_and_in_answers_to_full_requests() -> None:
    """CGH-06."""
    room = Room(foo=1)
    client = Client(room, "a", topics=["foo"])
    assert client.join().assignment is not None
    assert client.beat().assignment is None
    full = joining(member_epoch=client.epoch, topic_partitions=owned_partitions(sorted(client.owned)))
    assert room.beat(full).assignment is not None
    written = len(room.log)
    client.beat()
    assert len(room.log) == written, "a heartbeat that changes nothing writes nothing"


def test_unknown_groups_and_members() -> None:
    """CGH-07."""
    room = Room(foo=1)
    beaten = room.beat(joining(member_epoch=1))
    assert (beaten.error_code, beaten.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    assert room.beat(joining(member_epoch=-1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Client(room, "a", topics=["foo"]).join()
    for epoch in (1, -1):
        assert room.beat(joining(member_id="b", member_epoch=epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_that_fence() -> None:
    """CGH-08: above the known one, and below it but for the last one with nothing that was taken away."""
    room = Room(foo=2)
    first, second = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    first.join()
    before, owned_before = first.epoch, set(first.owned)
    second.join()
    first.beat()
    first.beat()
    assert first.epoch > before

    def answer(epoch: int, owned: object) -> int:
        return room.beat(joining(member_epoch=epoch, topic_partitions=owned)).error_code

    assert answer(first.epoch + 1, []) == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer(before, owned_partitions(sorted(owned_before))) == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer(before, None) == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer(before - 1, []) == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer(before, owned_partitions(sorted(first.owned))) == ErrorCode.NONE


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
    assert reported.member_epoch < second.epoch, "who is to give up stays in its epoch"
    assert len(first.owned) == 2
    second.beat()
    assert second.names() == set(), "not before the first says that it owns them no more"
    assert first.beat().member_epoch == second.epoch
    second.beat()
    assert first.names() | second.names() == {("foo", partition) for partition in range(4)}
    assert room.group().state_name == "Stable"


@pytest.mark.step("groups", "Heartbeat")
def test_who_does_not_say_what_it_owns_has_given_nothing_up() -> None:
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


def test_a_static_member_finds_what_it_left() -> None:
    """CGH-11."""
    room = Room(foo=4)
    static, other = Client(room, "a", instance="i", topics=["foo"]), Client(room, "b", topics=["foo"])
    static.join()
    other.join()
    settle(room, [static, other])
    owned = static.names()
    epoch = room.group().epoch
    assert static.leave(-2).member_epoch == -2
    settle(room, [other], rounds=2)
    assert len(other.names()) == 2, "what the static member owned is reserved"
    again = Client(room, "c", instance="i", topics=["foo"])
    assert again.join().error_code == ErrorCode.NONE
    assert again.names() == owned
    assert room.group().epoch == epoch, "no other member is bothered"
    assert [*room.group().members] == ["b", "c"]


def test_instances_that_others_have() -> None:
    """CGH-12."""
    room = Room(foo=1)
    Client(room, "a", instance="i", topics=["foo"]).join()
    assert Client(room, "b", instance="i", topics=["foo"]).join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    stranger = Client(room, "b", instance="i", epoch=2)
    assert stranger.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert stranger.leave().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert Client(room, "b", instance="j", epoch=2).beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


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


def test_a_static_member_that_does_not_come_back_is_fenced() -> None:
    """CGH-13."""
    room = Room(foo=1)
    static = Client(room, "a", instance="i", topics=["foo"])
    static.join()
    static.leave(-2)
    room.pass_time(SESSION_MS)
    assert room.group().is_empty
    assert room.group().static_members == {}


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


def test_who_gave_up_in_time_is_not_fenced_later() -> None:
    room = Room(foo=2)
    clients = [Client(room, name, topics=["foo"]) for name in "ab"]
    for client in clients:
        client.join()
    settle(room, clients)
    for _ in range(3):
        room.pass_time(REBALANCE_TIMEOUT_MS - 1)
        for client in clients:
            client.beat()
    assert len(room.group().members) == 2


def test_commits_of_epochs_that_are_over() -> None:
    """CGH-14: a commit of an older epoch counts for what was owned since then."""
    room = Room(foo=4)
    client, other = Client(room, "a", topics=["foo"]), Client(room, "b", topics=["foo"])
    client.join()
    old, was_owned = client.epoch, set(client.owned)
    other.join()
    settle(room, [client, other])
    group = room.group()
    assert group.check_commit("a", None, client.epoch, 9, False) is None
    check = group.check_commit("a", None, old, 9, False)
    assert check is not None
    for topic, partition in client.owned:
        check("foo", topic, partition)
    for topic, partition in was_owned - client.owned:
        with pytest.raises(KafkaError) as refused:
            check("foo", topic, partition)
        assert refused.value.code == ErrorCode.STALE_MEMBER_EPOCH
    expected = {
        ("a", client.epoch + 1, 9): ErrorCode.STALE_MEMBER_EPOCH,
        ("x", client.epoch, 9): ErrorCode.UNKNOWN_MEMBER_ID,
        ("", -1, 9): ErrorCode.UNKNOWN_MEMBER_ID,
        ("a", client.epoch, 8): ErrorCode.UNSUPPORTED_VERSION,
    }
    for (member, epoch, version), code in expected.items():
        with pytest.raises(KafkaError) as refused:
            group.check_commit(member, None, epoch, version, False)
        assert refused.value.code == code
    assert group.check_commit("", None, -1, 9, True) is None, "a transaction that names no member"


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


def test_an_empty_group_takes_commits_without_a_member() -> None:
    """OFF: a group may be used for its offsets only."""
    room = Room(foo=1)
    client = Client(room, "a", topics=["foo"])
    client.join()
    client.leave()
    assert room.group().check_commit("", None, -1, 7, False) is None


def test_a_full_group() -> None:
    room = Room(ConsumerGroupSettings(assignment_interval_ms=0, max_size=1), foo=1)
    first = Client(room, "a", topics=["foo"])
    first.join()
    assert Client(room, "b", topics=["foo"]).join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.join().error_code == ErrorCode.NONE


def test_the_next_coordinator_knows_everything() -> None:
    room = Room(foo=4, bar=1)
    clients = [Client(room, name, topics=["foo"], instance="i" if name == "a" else None) for name in "abc"]
    clients[2].regex = "b.*"
    for client in clients:
        client.join()
        room.pass_time(1)
    clients[0].beat()
    for compacts in (False, True):
        before = room.group()
        if compacts:
            room.compact()
        room.fail_over()
        assert replace(room.group(), checked_at_epoch=None) == replace(before, checked_at_epoch=None)
    settle(room, clients)
    assert set().union(*(client.names() for client in clients)) == {*[("foo", i) for i in range(4)], ("bar", 0)}
    for client in clients[1:]:
        client.leave()
    room.pass_time(SESSION_MS)
    assert room.group().is_empty, "the new coordinator's timers run"


def test_a_deleted_group_leaves_nothing_behind() -> None:
    room = Room(foo=1, bar=1)
    client = Client(room, "a", topics=["foo"], regex="b.*")
    client.join()
    room.pass_time(1)
    client.beat()
    with pytest.raises(KafkaError):
        room.group().check_delete()
    client.leave()
    room.group().check_delete()
    room.write(room.group().tombstones(), room.now)
    assert room.groups == {}
    room.compact()
    assert room.log == []


def test_what_time_brings_is_tried_again_when_it_cannot_be_written() -> None:
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


def test_a_description() -> None:
    room = Room(foo=2)
    client = Client(room, "a", instance="i", topics=["foo"])
    client.join()
    reported = describe(room.group(), room.topics, "uniform")
    assert (reported.group_state, reported.group_epoch, reported.assignment_epoch, reported.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    member = reported.members[0]
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == ("a", "i", 2, 1)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("client", "/127.0.0.1", ["foo"])
    for assignment in (member.assignment, member.target_assignment):
        assert [(topic.topic_name, topic.partitions) for topic in assignment.topic_partitions] == [("foo", [0, 1])]
