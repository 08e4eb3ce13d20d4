"""The suite's members of groups: which requests they send, which state they keep, and which answers they treat as failures."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.classic_groups import Group, subscription
from conformance.committed_offsets import (
    Committed,
    Names,
    commit,
    commit_request,
    committed,
    expect_committed,
    fetch_request,
)
from conformance.consumers import Consumer, expect_apart, joined, partitions_of, settle
from conformance.host import addresses
from conformance.levels import MAY
from conformance.observations import Skipped
from conformance.requirement import Requirement
from conformance.subject import Subject
from conformance.wire import Failed
from linearizability.client.group_member import owned_partitions
from linearizability.client.requests import Topic
from reference.protocol.codec import decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.conformance.agreeable import Agreeable, id_of

TOPIC = Topic("orders", id_of("orders"), 3)


@pytest.fixture
def coordinator() -> Iterator[Agreeable]:
    bird = Agreeable()
    bird.partitions["orders"] = TOPIC.partitions
    yield bird
    bird.close()


@pytest.fixture
def broker(coordinator: Agreeable) -> Iterator[Broker]:
    record = Requirement(id="GRP-99", level=MAY, sentence="A sentence.", source="a test", deadline_s=5)
    subject = Subject(addresses(coordinator.bootstrap), "4.3.1", coordinator.ranges())
    with Broker(subject, record) as held:
        yield held


# ---- classic members


def test_a_member_comes_back_with_the_id_that_it_was_given(broker: Broker) -> None:
    member = Group(broker).member()
    first = member.ask_to_join()
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    given = member.id
    member.join()
    assert (member.id, member.generation, member.leads) == (given, 1, True)


def test_the_first_of_a_group_is_stable_and_is_given_its_own_bytes(broker: Broker) -> None:
    (member,) = Group(broker).stable(1)
    assert bytes(member.sync({member.id: b"mine"}).assignment) == b"mine"


def test_bytes_that_are_not_the_members_own_are_a_failure(broker: Broker, coordinator: Agreeable) -> None:
    def another(request: Any, response: Any, version: int) -> None:
        response.assignment = b"another's"

    coordinator.answers["SyncGroup"] = another
    with pytest.raises(Failed, match="the assignment"):
        Group(broker).stable(1)


def test_a_join_that_is_refused_is_a_failure(broker: Broker, coordinator: Agreeable) -> None:
    def refuse(request: Any, response: Any, version: int) -> None:
        response.error_code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    member = Group(broker).member(id="somebody")
    coordinator.answers["JoinGroup"] = refuse
    with pytest.raises(Failed, match="INCONSISTENT_GROUP_PROTOCOL"):
        member.join()
    assert (member.generation, member.leads) == (-1, False)


def test_a_session_that_the_targets_bounds_leave_out_cannot_be_had(broker: Broker, coordinator: Agreeable) -> None:
    def refuse(request: Any, response: Any, version: int) -> None:
        response.error_code = ErrorCode.INVALID_SESSION_TIMEOUT

    coordinator.answers["JoinGroup"] = refuse
    with pytest.raises(Failed, match="INVALID_SESSION_TIMEOUT"):
        Group(broker).member(session_timeout_ms=6_000).join()
    bounds = {"group.min.session.timeout.ms": "10000", "group.max.session.timeout.ms": "60000"}
    broker.subject.profile.configs = dict(bounds)
    with pytest.raises(Skipped, match="takes 10000 to 60000"):
        Group(broker).member(session_timeout_ms=6_000).join()
    with pytest.raises(Failed, match="INVALID_SESSION_TIMEOUT"):
        Group(broker).member(session_timeout_ms=10_000).join()


def test_a_group_waits_for_its_coordinator(broker: Broker, coordinator: Agreeable) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    asked: list[str] = []

    def loading(request: Any, response: Any, version: int) -> None:
        asked.append(request.group_id)
        response.error_code = codes[min(len(asked), len(codes)) - 1]

    coordinator.answers["LeaveGroup"] = loading
    group = Group(broker)
    assert asked == [group.name] * len(codes)


def test_a_subscription_is_what_consumers_send() -> None:
    data = subscription("a", "b", user_data=b"x", version=1, owned={"a": [0, 2]})
    reported, end = decode_from(ConsumerProtocolSubscription, 1, memoryview(data), 2)
    assert (end, data[:2], list(reported.topics), bytes(reported.user_data or b"")) == (
        len(data),
        b"\x00\x01",
        ["a", "b"],
        b"x",
    )
    assert [(one.topic, list(one.partitions)) for one in reported.owned_partitions] == [("a", [0, 2])]


# ---- committed offsets


def test_topics_are_named_once_with_all_their_partitions() -> None:
    other = Topic("others", uuid.uuid4(), 1)
    request = commit_request("g", {(TOPIC, 0): 5, (other, 0): Committed(6, None, 2), (TOPIC, 2): 7})
    reported = [
        (one.name, one.topic_id, [(part.partition_index, part.committed_offset) for part in one.partitions])
        for one in request.topics
    ]
    assert reported == [("orders", TOPIC.id, [(0, 5), (2, 7)]), ("others", other.id, [(0, 6)])]


@pytest.mark.parametrize("version", [2, 9, 10])
def test_what_is_committed_in_any_version_is_returned_in_it(broker: Broker, version: int) -> None:
    assert commit(broker, "g", {(TOPIC, 1): 5}, version=version) == {(TOPIC, 1): ErrorCode.NONE}
    found = committed(broker, "g", [(TOPIC, 1), (TOPIC, 2)], version=version)
    assert {key: one.offset for key, one in found.partitions.items()} == {(TOPIC, 1): 5, (TOPIC, 2): -1}


def test_several_groups_below_their_version_are_skipped(broker: Broker) -> None:
    with pytest.raises(Skipped, match="one group only"):
        fetch_request(broker, {"a": None, "b": None}, 7)


def test_a_topic_that_was_not_asked_for_is_a_failure() -> None:
    reported = type("Entry", (), {"name": "strange", "topic_id": uuid.uuid4()})()
    for version in (9, 10):
        with pytest.raises(Failed, match="which was not asked for"):
            Names([TOPIC], version).topic(reported)


def test_commits_wait_for_a_coordinator_that_loads_and_for_nothing_else(broker: Broker, coordinator: Agreeable) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]
    agree = coordinator.answers["OffsetCommit"]

    def answer(request: Any, response: Any, version: int) -> None:
        agree(request, response, version)
        response.topics[0].partitions[0].error_code = codes.pop(0)

    coordinator.answers["OffsetCommit"] = answer
    expect_committed(broker, "g", {(TOPIC, 0): 1})
    assert codes == [ErrorCode.ILLEGAL_GENERATION]
    with pytest.raises(Failed, match="22"):
        expect_committed(broker, "g", {(TOPIC, 0): 1})


# ---- consumers


def test_a_consumer_owns_what_it_is_assigned_and_says_so_once(broker: Broker) -> None:
    (consumer,) = joined(broker, "g", 1, [TOPIC])
    assert consumer.assigned == consumer.reported == partitions_of(TOPIC)
    assert consumer.beat().assignment is None


def test_two_holders_of_a_partition_are_a_failure(broker: Broker) -> None:
    with pytest.raises(Failed, match="both hold"):
        joined(broker, "g", 2, [TOPIC])


def test_what_was_not_yet_said_to_be_given_up_is_held(broker: Broker) -> None:
    one, other = (Consumer(broker, "g", [TOPIC]) for _ in range(2))
    one.reported, one.assigned = partitions_of(TOPIC), {(TOPIC.id, 0)}
    other.assigned = {(TOPIC.id, 2)}
    with pytest.raises(Failed, match="both hold"):
        expect_apart(broker, [one, other])
    one.reported = {(TOPIC.id, 0)}
    expect_apart(broker, [one, other])


def test_partitions_are_reported_by_topic() -> None:
    reported = [(one.topic_id, list(one.partitions)) for one in owned_partitions(partitions_of(TOPIC))]
    assert reported == [(TOPIC.id, [0, 1, 2])]


def test_who_does_not_settle_is_a_failure(broker: Broker) -> None:
    consumer = Consumer(broker, "g", [])
    consumer.join()
    with pytest.raises(Failed, match="own 3 partitions"):
        settle(consumer, topics=[TOPIC], within_s=0.1)


def test_a_refused_heartbeat_is_a_failure(broker: Broker, coordinator: Agreeable) -> None:
    (consumer,) = joined(broker, "g", 1, [TOPIC])

    def fence(request: Any, response: Any, version: int) -> None:
        response.error_code = ErrorCode.FENCED_MEMBER_EPOCH

    coordinator.answers["ConsumerGroupHeartbeat"] = fence
    with pytest.raises(Failed, match="FENCED_MEMBER_EPOCH"):
        consumer.beat()


def test_a_member_can_ask_to_join_with_no_protocol(broker: Broker) -> None:
    member = Group(broker).member()
    member.protocols = {}
    assert member.join_request().protocols == []
