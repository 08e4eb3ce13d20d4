"""Fetch sessions by KIP-227: epochs, what an incremental response leaves out, and what happens when slots run out."""

import random

from reference.node.fetch_sessions import EVICTION_MS, FetchContext, FetchSessions
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse

VERSION = 12


def request(id: int, epoch: int, *partitions: int, forget: tuple[int, ...] = ()) -> FetchRequest:
    wanted = [FetchRequest.FetchPartition(partition=index, partition_max_bytes=1000) for index in partitions]
    forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=list(forget))] if forget else []
    return FetchRequest(
        session_id=id,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=wanted)] if wanted else [],
        forgotten_topics_data=forgotten,
    )


def results(
    context: FetchContext, high_watermark: int = 5, with_records: tuple[int, ...] = ()
) -> list[FetchResponse.PartitionData]:
    return [
        FetchResponse.PartitionData(
            partition_index=each.partition,
            high_watermark=high_watermark,
            log_start_offset=0,
            records=b"r" if each.partition in with_records else b"",
        )
        for each in context.wanted
    ]


def reported(response: FetchResponse) -> list[int]:
    return [each.partition_index for topic in response.responses for each in topic.partitions]


def open_session(sessions: FetchSessions, *partitions: int) -> int:
    context = sessions.context(request(0, 0, *partitions), VERSION, 0)
    response = sessions.finish(context, VERSION, results(context), 0)
    assert reported(response) == list(partitions)
    return response.session_id


def test_a_session_is_made_only_when_it_is_asked_for() -> None:
    sessions = FetchSessions(10, random.Random(1))
    context = sessions.context(request(0, -1, 0, 1), VERSION, 0)
    assert sessions.finish(context, VERSION, results(context), 0).session_id == 0
    assert open_session(sessions, 0, 1) != 0
    assert len(sessions.sessions) == 1


def test_an_incremental_response_leaves_out_what_is_not_new() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0, 1, 2)
    context = sessions.context(request(id, 1), VERSION, 0)
    assert [each.partition for each in context.wanted] == [0, 1, 2]
    quiet = results(context)
    quiet[1].high_watermark = 6
    assert reported(sessions.finish(context, VERSION, quiet, 0)) == [1]


def test_partitions_with_records_go_to_the_end() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0, 1, 2)
    context = sessions.context(request(id, 1), VERSION, 0)
    sessions.finish(context, VERSION, results(context, with_records=(0,)), 0)
    after = sessions.context(request(id, 2), VERSION, 0)
    assert [each.partition for each in after.wanted] == [1, 2, 0]


def test_an_error_is_reported_and_its_end_too() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0)
    context = sessions.context(request(id, 1), VERSION, 0)
    failed = results(context)
    failed[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert reported(sessions.finish(context, VERSION, failed, 0)) == [0]
    healed = sessions.context(request(id, 2), VERSION, 0)
    assert reported(sessions.finish(healed, VERSION, results(healed), 0)) == [0]


def test_wrong_epochs_and_unknown_sessions_are_refused() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0)
    assert sessions.context(request(id, 2), VERSION, 0).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.context(request(id + 1, 1), VERSION, 0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.context(request(id, 1), 13, 0).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.context(request(id, 1), VERSION, 0).error is ErrorCode.NONE


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0)
    sessions.sessions[id].epoch = 0x7FFFFFFF
    sessions.context(request(id, 0x7FFFFFFF), VERSION, 0)
    assert sessions.context(request(id, 1), VERSION, 0).error is ErrorCode.NONE


def test_forgetting_the_last_partition_ends_the_session() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0, 1)
    assert [each.partition for each in sessions.context(request(id, 1, forget=(0,)), VERSION, 0).wanted] == [1]
    context = sessions.context(request(id, 2, forget=(1,)), VERSION, 0)
    assert sessions.finish(context, VERSION, [], 0).session_id == 0
    assert not sessions.sessions


def test_a_full_request_that_names_a_session_ends_it() -> None:
    sessions = FetchSessions(10, random.Random(1))
    id = open_session(sessions, 0)
    context = sessions.context(request(id, 0, 0), VERSION, 0)
    renewed = sessions.finish(context, VERSION, results(context), 0).session_id
    assert renewed not in (0, id)
    assert list(sessions.sessions) == [renewed]


def test_without_a_free_slot_the_fetch_stays_sessionless_until_one_is_old() -> None:
    sessions = FetchSessions(1, random.Random(1))
    first = open_session(sessions, 0)
    assert open_session(sessions, 0) == 0
    context = sessions.context(request(0, 0, 0), VERSION, EVICTION_MS + 1)
    second = sessions.finish(context, VERSION, results(context), EVICTION_MS + 1).session_id
    assert second not in (0, first)
