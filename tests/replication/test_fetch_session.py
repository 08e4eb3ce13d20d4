"""The follower's side of a fetch session: named and forgotten partitions, and new sessions."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.node.fetch_sessions import FetchSessions
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import FIRST_OFFSET, NO_EPOCH, LeaderEpoch, Offset, TimestampMs
from reference.replication.fetch_session import LAST_EPOCH, FetchSession, Key, Wanted

A, B, C = (UUID(int=1), 0), (UUID(int=1), 1), (UUID(int=2), 0)


def wanted(*keys: Key, offset: int = 0) -> dict[Key, Wanted]:
    return {key: Wanted(Offset(offset), LeaderEpoch(5), NO_EPOCH, FIRST_OFFSET) for key in keys}


def ask(session: FetchSession, asked: dict[Key, Wanted]) -> FetchRequest:
    """The next request for these partitions alone."""
    return session.request(asked, 100, [key for key in session.partitions if key not in asked])


def named(request: FetchRequest) -> list[Key]:
    return [(topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[Key]:
    return [(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions]


def response(*keys: Key, session_id: int = 7, error: int = 0) -> FetchResponse:
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic_id=topic_id, partitions=[FetchResponse.PartitionData(partition_index=index)]
        )
        for topic_id, index in keys
    ]
    return FetchResponse(session_id=session_id, error_code=error, responses=topics)


def begun(*keys: Key) -> FetchSession:
    """A session with these partitions, one full request old."""
    session = FetchSession()
    ask(session, wanted(*keys))
    assert session.answered(response(*keys)) is None
    return session


def test_partitions_are_named_once_and_then_only_what_changes() -> None:
    session = FetchSession()
    first = ask(session, wanted(A, B, C))
    assert (first.session_id, first.session_epoch, named(first)) == (0, 0, [A, B, C])
    assert [len(topic.partitions) for topic in first.topics] == [2, 1]
    assert session.answered(response(A, B, C)) is None
    second = ask(session, {**wanted(A), **wanted(B, offset=3)})
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert named(second) == [B] and forgotten(second) == [C]
    assert second.topics[0].partitions[0].fetch_offset == 3
    assert session.answered(response(B)) is None
    assert (session.id, session.epoch) == (7, 2)


def test_a_leader_without_room_is_asked_for_everything_each_time() -> None:
    session = FetchSession()
    for _ in range(2):
        request = ask(session, wanted(A, B))
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [A, B])
        assert session.answered(response(A, B, session_id=0)) is None


@pytest.mark.parametrize(
    ("error", "id"), [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)]
)
def test_a_refused_session_begins_again_and_names_an_id_that_the_leader_may_still_know(error: int, id: int) -> None:
    session = begun(A)
    ask(session, wanted(A))
    assert session.answered(response(session_id=0, error=error)) is not None
    again = ask(session, wanted(A))
    assert (again.session_id, again.session_epoch, named(again)) == (id, 0, [A])


@pytest.mark.parametrize("keys", [(B,), (A, A)])
def test_an_answer_that_does_not_fit_is_not_used(keys: tuple[Key, ...]) -> None:
    session = begun(A)
    ask(session, wanted(A))
    assert session.answered(response(*keys)) is not None
    assert session.is_full
    assert FetchSession(partitions=wanted(A, B)).answered(response(A)) is not None, "a full answer names all"


def test_a_session_that_the_leader_closes_is_over() -> None:
    session = begun(A)
    ask(session, {})
    assert session.answered(response(session_id=0)) is None
    assert (session.id, session.epoch, session.partitions) == (0, 0, {})


def test_epochs_go_on_from_one_after_the_last() -> None:
    session = begun(A)
    session.epoch = LAST_EPOCH
    ask(session, wanted(A))
    session.answered(response())
    assert session.epoch == 1


@given(st.lists(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 2)), max_size=8), st.data())
def test_the_leader_always_knows_what_is_wanted(rounds: list[dict[Key, int]], data: st.DataObject) -> None:
    """After any changes, lost responses and evictions the leader serves exactly the wanted partitions."""
    import random

    leader, session = FetchSessions(2, random.Random(3)), FetchSession()
    for now, offsets in enumerate(rounds):
        asked = {key: Wanted(Offset(offset), LeaderEpoch(5), NO_EPOCH, FIRST_OFFSET) for key, offset in offsets.items()}
        if data.draw(st.integers(0, 5)) == 0:
            leader.sessions.clear()
        request = ask(session, asked)
        context = leader.context(request, 18, TimestampMs(now))
        if context.error is not ErrorCode.NONE:
            assert session.answered(FetchResponse(error_code=context.error)) is not None
            continue
        served = {(each.topic_id, each.partition): each.fetch_offset for each in context.wanted}
        assert served == offsets
        results = [FetchResponse.PartitionData(partition_index=each.partition, records=b"") for each in context.wanted]
        answer = leader.finish(context, 18, results, TimestampMs(now))
        if data.draw(st.integers(0, 5)) == 0:
            session.begin_again()
        else:
            assert session.answered(answer) is None
