"""Fetches of the quorum: waiting for records, refusals, and diverging logs."""

from __future__ import annotations

import pytest

from reference.controller import quorum_messages as messages
from reference.controller.quorum_log import Comparison, Verdict
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.primitives import LeaderEpoch, NodeId, Offset
from tests.controller.quorum_members import CLUSTER, Members, asker_of, fetch, part, topic


@pytest.mark.step("quorum", "AnswerFetch")
def test_a_fetch_waits_for_records(three: Members) -> None:
    three.deliver()
    leader = three[0]
    leader.handle_fetch(fetch(1, last=(1, 1), wait_ms=500), "a token", three.now)
    assert all(token != "a token" for token, _ in leader.take_answers())
    leader.append([topic(1)], three.now)
    answers = {token: answer for token, answer in leader.take_answers() if token == "a token"}
    assert len(part(answers["a token"]).records) > 0


@pytest.mark.parametrize(
    ("id", "request_", "code"),
    [
        (0, fetch(epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (0, fetch(epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, fetch(2, epoch=1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, fetch(0), ErrorCode.INVALID_REQUEST),
        (0, fetch(last=(2, 0)), ErrorCode.INVALID_REQUEST),
        (0, fetch(last=(0, -1)), ErrorCode.INVALID_REQUEST),
        (0, fetch(last=(-1, 0)), ErrorCode.INVALID_REQUEST),
        (0, fetch(wait_ms=-1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_fetches_that_are_refused_say_who_leads(
    three: Members, id: int, request_: FetchRequest, code: ErrorCode
) -> None:
    answer = part(three.fetch(id, request_))
    assert answer.error_code == code
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (0, 1)


def test_fetches_that_are_refused_as_a_whole(three: Members) -> None:
    stranger = fetch()
    stranger.cluster_id = "another"
    assert three.fetch(0, stranger).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert three.fetch(0, FetchRequest(cluster_id=CLUSTER)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.step("quorum", "ApplyFetch")
def test_a_log_that_parts_is_cut_where_it_parts(three: Members) -> None:
    three[0].append([topic(1)], three.now)
    three.deliver()
    three.reaches = lambda sender, receiver: False
    three[0].append([topic(2), topic(3)], three.now)
    assert three[0].log_end_offset == 4
    three.reaches = lambda sender, receiver: 0 not in (sender, receiver)
    three.pass_time(6_000, step=20)
    leader = next(id for id in (1, 2) if three[id].is_ready)
    three[leader].append([topic(4)], three.now)
    assert part(three.fetch(leader, fetch(0, three[leader].epoch, last=(1, 4)))).diverging_epoch.end_offset == 2
    three.reaches = lambda sender, receiver: True
    three.pass_time(3_000, step=20)
    assert [three.names(id) for id in (0, 1, 2)] == [["t1", "t4"]] * 3


def test_a_leader_cannot_make_a_member_drop_what_is_committed(three: Members) -> None:
    three[0].append([topic(1)], three.now)
    three.deliver()
    three.pass_time(1_000)
    three.now += 600
    three[0].tick(three.now)
    three[0].take_answers()
    three[1].tick(three.now + 2_000)
    three[1].handle_begin_quorum_epoch(messages.begin_request(asker_of(2, 9), NodeId(1)), three.now)
    peer, request = next(each for each in three[1].take_sends() if isinstance(each[1], FetchRequest) and each[0] == 2)
    response = messages.fetch_response(
        ErrorCode.NONE,
        LeaderEpoch(9),
        NodeId(2),
        high_watermark=Offset(0),
        compared=Comparison(Verdict.DIVERGING, LeaderEpoch(1), Offset(0)),
    )
    three[1].receive(peer, request, response, three.now)
    assert three.names(1) == ["t1"]
    assert "below what is committed" in three.sayings[-1]
