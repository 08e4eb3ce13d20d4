"""Requests and state of clients, without a connection."""

from __future__ import annotations

import pytest

from linearizability.client.errors import error_of, errors_in
from linearizability.client.group_member import (
    ClassicMember,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from linearizability.client.producer_session import NO_PRODUCER, ProducerSession
from linearizability.client.requests import Committed, by_topic, commit_request, fetch_offsets_request, produced
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupResponse
from reference.protocol.messages.produce import ProduceResponse
from reference.protocol.primitives import FIRST_OFFSET, TimestampMs
from reference.protocol.records.batch import read_header
from reference.protocol.records.record import Record

PARTITIONS = [("a", 1), ("b", 0), ("a", 0)]


def test_partitions_are_grouped_by_topic_or_stand_apart() -> None:
    assert by_topic(PARTITIONS) == [("a", [1, 0]), ("b", [0])]
    assert by_topic(PARTITIONS, apart=True) == [("a", [1]), ("b", [0]), ("a", [0])]


def test_a_commit_has_offset_epoch_and_metadata() -> None:
    request = commit_request("g", {("a", 1): Committed(7, "m", 3), ("a", 2): 8}, generation=4, member_id="x")
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 4, "x")
    (topic,) = request.topics
    partitions = [
        (p.partition_index, p.committed_offset, p.committed_metadata, p.committed_leader_epoch)
        for p in topic.partitions
    ]
    assert (topic.name, partitions) == ("a", [(1, 7, "m", 3), (2, 8, "", -1)])


def test_a_fetch_of_all_committed_offsets_differs_from_one_of_none() -> None:
    everything, nothing = fetch_offsets_request({"g": None, "h": []}).groups
    assert (everything.topics, nothing.topics) == (None, [])


def test_the_top_level_error_comes_before_those_of_members() -> None:
    member = LeaveGroupResponse.MemberResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert error_of(LeaveGroupResponse(members=[member])) == ErrorCode.UNKNOWN_MEMBER_ID
    refused = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, members=[member])
    assert [*errors_in(refused)] == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID]
    assert error_of(LeaveGroupResponse()) == ErrorCode.NONE


def test_operation_not_attempted_is_the_error_only_if_there_is_no_other() -> None:
    table = AddPartitionsToTxnResponse
    codes = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NOT_COORDINATOR)
    results = [table.AddPartitionsToTxnPartitionResult(partition_error_code=code) for code in codes]

    def answer(count: int) -> AddPartitionsToTxnResponse:
        topic = table.AddPartitionsToTxnTopicResult(name="a", results_by_partition=results[:count])
        return table(results_by_topic_v3_and_below=[topic])

    assert error_of(answer(2)) == ErrorCode.NOT_COORDINATOR
    assert error_of(answer(1)) == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_a_produce_response_must_have_exactly_one_partition() -> None:
    partition = ProduceResponse.PartitionProduceResponse(index=0)
    topic = ProduceResponse.TopicProduceResponse(name="a", partition_responses=[partition])
    assert produced(ProduceResponse(responses=[topic])) is partition
    for responses in ([], [topic, topic]):
        with pytest.raises(ValueError):
            produced(ProduceResponse(responses=responses))


def test_a_new_epoch_begins_at_sequence_0_and_the_same_epoch_continues() -> None:
    session = ProducerSession("t")
    assert session.identity == NO_PRODUCER
    session.become(5, 0)
    session.appended(("a", 0), 3)
    session.become(5, 0)
    header = read_header(bytes(session.batch(("a", 0), [Record(FIRST_OFFSET, TimestampMs(0), None, b"x", ())])))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (5, 0, 3, True)
    session.become(5, 1)
    assert session.sequences == {}


def test_a_request_can_carry_a_zombies_epoch() -> None:
    session = ProducerSession("t", (5, 2))
    own, zombies = session.end(True), session.end(True, (5, 1))
    assert ((own.producer_id, own.producer_epoch), zombies.producer_epoch) == ((5, 2), 1)


def test_a_member_rejoins_with_its_assigned_id() -> None:
    member = ClassicMember("g", {"range": b"m"})
    member.joined(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="x"))
    assert (member.join().member_id, member.generation) == ("x", -1)
    member.joined(JoinGroupResponse(member_id="x", generation_id=2, protocol_name="range"))
    assert (member.heartbeat().generation_id, member.sync().protocol_name) == (2, "range")
    member.joined(JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id="", generation_id=-1))
    assert (member.id, member.generation) == ("x", 2)


def test_subscriptions_and_assignments_are_decoded_as_encoded() -> None:
    decoded = decode_subscription(encode_subscription(["a"], PARTITIONS, generation=4))
    owned = [(each.topic, index) for each in decoded.owned_partitions for index in each.partitions]
    assert (decoded.topics, owned, decoded.generation_id) == (["a"], PARTITIONS, 4)
    assert decode_assignment(encode_assignment(PARTITIONS)) == PARTITIONS
    assert decode_assignment(b"") == []
