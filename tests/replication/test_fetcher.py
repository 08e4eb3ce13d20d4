"""A fetcher: its requests to a leader, and the effect of each response."""

from typing import Any
from uuid import UUID

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from reference.protocol.primitives import AT_ONCE, FIRST_OFFSET, NodeId, TimestampMs
from reference.replication.fetcher import Fetched, Fetcher, FetchSettings, Followed
from reference.replication.partition import Partition
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import (
    NOW,
    TOPIC_ID,
    batch,
    contents,
    follower,
    incarnation,
    leader,
    open_log,
    state,
    take,
)
from tests.replication.serving import LeaderSide

LEADER, FOLLOWER = NodeId(1), NodeId(2)
BACKOFF_MS = FetchSettings().backoff_ms
MANY = 40


class Pair:
    """Broker 1 leads, broker 2 follows and has a fetcher."""

    def __init__(self, following: Partition | None = None, slots: int = 10) -> None:
        self.leading = leader(isr=(1, 2))
        self.following = following or follower()
        self.side = LeaderSide(lambda topic, index: self.leading if (topic, index) in PARTITION else None, slots)
        self.fetcher = Fetcher(LEADER, FOLLOWER, incarnation(2))
        assert self.fetcher.follow(self.following)

    def produce(self, *values: bytes) -> None:
        self.leading.produce(batch(*values), NOW)

    def exchange(self, now: TimestampMs = NOW) -> Fetched:
        request = self.fetcher.next_request(now)
        assert request is not None
        return self.fetcher.answered(self.side.answer(request, now), now)

    def exchange_often(self) -> None:
        """Exchange often enough to replicate all records and the high watermark."""
        for _ in range(6):
            self.exchange()

    def answer_with(self, now: TimestampMs = NOW, **data: Any) -> Fetched:
        """Send a fetch, and answer it with the given fields."""
        assert isinstance(self.fetcher.next_request(now), FetchRequest)
        defaults: dict[str, Any] = {"partition_index": 0, "records": b"", "high_watermark": 0, "log_start_offset": 0}
        return self.fetcher.answered(answer(FetchResponse.PartitionData(**{**defaults, **data})), now)


PARTITION = {(TOPIC_ID, 0), ("t", 0)}


def answer(data: FetchResponse.PartitionData, topic_id: UUID = TOPIC_ID) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=[data])
    return FetchResponse(session_id=0, responses=[topic])


def test_a_follower_replicates_its_leader() -> None:
    pair = Pair()
    pair.produce(b"a", b"b")
    pair.produce(b"c")
    assert pair.exchange().moved == [pair.following]
    pair.exchange_often()
    assert contents(pair.following.log) == contents(pair.leading.log)
    assert pair.following.high_watermark == pair.leading.high_watermark == 3


def test_the_fields_of_a_fetch() -> None:
    pair = Pair()
    pair.produce(b"a")
    pair.exchange()
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, incarnation(2))
    assert (request.session_epoch, request.max_wait_ms, request.min_bytes, request.max_bytes) == (1, 500, 1, 10 << 20)
    asked = request.topics[0].partitions[0]
    assert (request.topics[0].topic_id, asked.fetch_offset, asked.last_fetched_epoch) == (TOPIC_ID, 1, 5)
    assert (asked.current_leader_epoch, asked.log_start_offset, asked.partition_max_bytes) == (5, 0, 1 << 20)


def test_one_request_is_out_at_a_time() -> None:
    pair = Pair()
    assert pair.fetcher.next_deadline() == 0
    assert pair.fetcher.next_request(NOW) is not None
    assert pair.fetcher.next_request(NOW) is None and pair.fetcher.next_deadline() is None


def test_a_log_that_is_longer_than_the_leaders_without_epochs_is_cut_to_its_end() -> None:
    following = follower(truncation="high-watermark")
    take(following, batch(b"x", b"y", base_offset=0, epoch=4), 0)
    take(following, batch(b"z", base_offset=2, epoch=4), 2)
    pair = Pair(following)
    pair.produce(b"a", b"b")
    pair.exchange()
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, ListOffsetsRequest)
    assert (request.replica_id, request.topics[0].partitions[0].timestamp) == (2, -1)
    assert pair.fetcher.answered(pair.side.answer(request, NOW), NOW).moved == [following]
    assert following.log.log_end_offset == 2
    assert isinstance(pair.fetcher.next_request(NOW), FetchRequest)


def test_an_offset_that_is_out_of_range_for_no_reason_to_be_seen_is_asked_for_again_after_a_pause() -> None:
    pair = Pair()
    pair.answer_with(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    pair.exchange()
    pair.exchange()
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS
    assert pair.fetcher.next_request(NOW) is None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        999,
    ],
)
def test_errors_that_pass_are_waited_out(error: int) -> None:
    pair = Pair()
    fetched = pair.answer_with(error_code=error)
    assert [note.partition for note in fetched.notes] == [pair.following] and fetched.moved == []
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS
    assert pair.fetcher.next_request(NOW + BACKOFF_MS - 1) is None
    assert pair.fetcher.next_request(NOW + BACKOFF_MS) is not None


def test_an_error_that_repeats_itself_is_noted_once_until_it_has_passed() -> None:
    pair = Pair()
    noted = [
        len(pair.answer_with(now=NOW + number * BACKOFF_MS, error_code=error).notes)
        for number, error in enumerate((6, 6, 3, 3, 0, 3))
    ]
    assert noted == [1, 0, 1, 0, 0, 1]


def test_corrupt_bytes_and_a_disk_that_refuses_delay_a_partition_and_a_log_that_refuses_fails_it() -> None:
    disk = SimulatedDisk()
    pair = Pair(follower(log=open_log(disk)))
    corrupt = batch(b"a", base_offset=0, epoch=5)
    corrupt[-1] ^= 1
    fetched = pair.answer_with(records=bytes(corrupt))
    assert fetched.notes[0].error is not None and not pair.fetcher.has_failed(pair.following)
    later = NOW + BACKOFF_MS
    disk.read_only = True
    pair.answer_with(later, records=bytes(batch(b"a", base_offset=0, epoch=5)))
    assert not pair.fetcher.has_failed(pair.following)
    disk.read_only = False
    pair.answer_with(later + BACKOFF_MS, records=bytes(batch(b"a", base_offset=0, epoch=5)))
    assert pair.following.log.log_end_offset == 1
    pair.answer_with(later + 2 * BACKOFF_MS, records=bytes(batch(b"a", base_offset=0, epoch=5)))
    assert pair.fetcher.has_failed(pair.following)


def test_bytes_without_a_whole_batch_are_not_asked_for_at_once() -> None:
    pair = Pair()
    pair.answer_with(records=bytes(batch(b"a", base_offset=0, epoch=5))[:-1])
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS


def test_no_answer_delays_all_and_begins_the_session_again() -> None:
    pair = Pair()
    pair.exchange()
    assert pair.fetcher.next_request(NOW) is not None
    assert pair.fetcher.failed(NOW).notes
    assert pair.fetcher.next_request(NOW) is None
    request = pair.fetcher.next_request(NOW + BACKOFF_MS)
    assert isinstance(request, FetchRequest) and request.session_epoch == 0 and request.session_id != 0


def test_an_answer_to_nothing_and_one_of_another_kind_change_nothing() -> None:
    pair = Pair()
    assert pair.fetcher.answered(FetchResponse(), NOW) == Fetched()
    assert pair.fetcher.failed(NOW) == Fetched()
    pair.fetcher.next_request(NOW)
    assert pair.fetcher.answered(ListOffsetsResponse(), NOW).notes
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS


def test_a_lost_session_is_begun_again_at_once_and_one_that_cannot_be_begun_after_a_pause() -> None:
    pair = Pair()
    pair.exchange()
    pair.side.sessions.sessions.clear()
    pair.exchange()
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest) and request.session_epoch == 0
    pair.fetcher.answered(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), NOW)
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS


def test_answers_to_requests_of_an_ended_leader_epoch_are_not_used() -> None:
    pair = Pair()
    pair.produce(b"a")
    request = pair.fetcher.next_request(NOW)
    assert request is not None
    response = pair.side.answer(request, NOW)
    pair.following.take_up(state(3, 6, 11), NOW)
    assert pair.fetcher.answered(response, NOW) == Fetched()
    assert pair.following.log.log_end_offset == 0
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest) and request.topics == [] and request.session_epoch == 0
    pair.fetcher.answered(pair.side.answer(request, NOW), NOW)
    assert pair.fetcher.is_idle and pair.fetcher.next_request(NOW) is None


def test_a_leader_repeats_what_it_sent_without_effect() -> None:
    """Within the session the leader would leave out fields that it counts as known."""
    pair = Pair()
    pair.produce(b"a")
    pair.exchange_often()
    assert pair.following.high_watermark == 1
    fresh = follower()
    assert pair.fetcher.follow(fresh)
    pair.exchange()
    pair.exchange()
    assert (fresh.log.log_end_offset, fresh.high_watermark) == (1, 1)
    pair.produce(b"b")
    request = pair.fetcher.next_request(NOW)
    assert request is not None
    response = pair.side.answer(request, NOW)
    fresh.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    pair.fetcher.follow(fresh)
    pair.fetcher.answered(response, NOW)
    assert fresh.log.log_end_offset == 1
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest) and (request.session_epoch, len(request.topics)) == (0, 1)


def test_after_a_cut_the_leader_sends_its_high_watermark_again() -> None:
    pair = Pair()
    pair.produce(b"a")
    pair.exchange_often()
    pair.following.log.append_as_follower(batch(b"x", base_offset=1, epoch=5), NOW)
    pair.following.high_watermark = FIRST_OFFSET
    pair.fetcher.look_again(pair.following)
    pair.exchange()
    pair.exchange()
    assert (pair.following.log.log_end_offset, pair.following.high_watermark) == (1, 1)


def test_the_leader_is_informed_of_a_partition_that_was_left() -> None:
    """Otherwise the leader reads that partition for each fetch of the session."""
    pair = Pair()
    other = Partition(
        "t", TOPIC_ID, 1, open_log(), FOLLOWER, brokers=pair.following.brokers, lag_max_ms=pair.following.lag_max_ms
    )
    other.take_up(state(), NOW)
    pair.fetcher.follow(other)
    pair.exchange()
    pair.exchange()
    pair.fetcher.leave(pair.following)
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest)
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(TOPIC_ID, [0])]


def test_another_epoch_of_the_same_leader_goes_on_in_the_session() -> None:
    pair = Pair()
    pair.exchange()
    pair.following.take_up(state(epoch=6, partition_epoch=11), NOW)
    assert pair.fetcher.follow(pair.following)
    request = pair.fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest) and request.session_epoch > 0
    assert request.topics[0].partitions[0].current_leader_epoch == 6


@pytest.mark.parametrize("offset", [-1, -100])
def test_a_bound_that_was_not_found_cuts_nothing(offset: int) -> None:
    pair = Pair()
    take(pair.following, batch(b"a", base_offset=0, epoch=5), 0)
    pair.answer_with(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    pair.fetcher.next_request(NOW)
    data = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    topics = [ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[data])]
    pair.fetcher.answered(ListOffsetsResponse(topics=topics), NOW)
    assert pair.following.log.log_end_offset == 1
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS


def test_an_answer_about_a_partition_that_diverges_from_nothing_is_not_asked_for_at_once() -> None:
    pair = Pair()
    take(pair.following, batch(b"a", base_offset=0, epoch=5), 0)
    diverging = FetchResponse.EpochEndOffset(epoch=5, end_offset=7)
    pair.answer_with(diverging_epoch=diverging)
    assert pair.following.log.log_end_offset == 1
    assert pair.fetcher.next_deadline() == NOW + BACKOFF_MS


def test_who_got_records_stands_last_in_the_next_full_request() -> None:
    fetcher = Fetcher(LEADER, FOLLOWER, incarnation(2))
    partitions = [Partition("t", TOPIC_ID, index, open_log(), FOLLOWER) for index in range(3)]
    for each in partitions:
        each.take_up(state(), NOW)
        fetcher.follow(each)
    fetcher.next_request(NOW)
    data = [FetchResponse.PartitionData(partition_index=index, records=b"") for index in range(3)]
    data[0].records = bytes(batch(b"a", base_offset=0, epoch=5))
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)
    fetcher.answered(FetchResponse(session_id=0, responses=[topic]), NOW)
    request = fetcher.next_request(NOW)
    assert isinstance(request, FetchRequest)
    assert [each.partition for topic in request.topics for each in topic.partitions] == [1, 2, 0]


def test_a_request_looks_at_what_has_changed_and_at_no_other_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = [leader(isr=(1, 2)) for _ in range(MANY)]
    fetcher, looks = Fetcher(LEADER, FOLLOWER, incarnation(2)), list[int]()
    side = LeaderSide(lambda topic, index: leading[index] if topic == TOPIC_ID else None)
    for index, each in enumerate(leading):
        each.index = index
        following = follower()
        following.index = index
        fetcher.follow(following)
    followed_from = Followed.is_followed_from

    def count(self: Followed, broker: NodeId) -> bool:
        looks.append(self.partition.index)
        return followed_from(self, broker)

    monkeypatch.setattr(Followed, "is_followed_from", count)

    def exchange() -> None:
        request = fetcher.next_request(NOW)
        assert request is not None and fetcher.next_deadline() is None
        looks.extend(each.partition for topic in getattr(request, "topics", ()) for each in topic.partitions)
        fetcher.answered(side.answer(request, NOW), NOW)

    for _ in range(3):
        exchange()
    looks.clear()
    exchange()
    assert looks == []
    leading[7].produce(batch(b"x"), NOW)
    for _ in range(4):
        exchange()
    assert set(looks) == {7} and len(looks) <= 16
    assert fetcher.followed[-1].high_watermark == 1


def test_a_leader_that_does_not_answer_is_asked_again_without_a_look_at_any_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher, looks = Fetcher(LEADER, FOLLOWER, incarnation(2)), list[int]()
    followers = [follower() for _ in range(MANY)]
    for index, each in enumerate(followers):
        each.index = index
    for each in followers[1:]:
        fetcher.follow(each)
    followed_from, wanted, now = Followed.is_followed_from, Fetcher._wanted, NOW

    def count(self: Followed, broker: NodeId) -> bool:
        looks.append(self.partition.index)
        return followed_from(self, broker)

    def count_wanted(self: Fetcher, followed: Followed) -> object:
        looks.append(followed.partition.index)
        return wanted(self, followed)

    monkeypatch.setattr(Followed, "is_followed_from", count)
    monkeypatch.setattr(Fetcher, "_wanted", count_wanted)

    def retry() -> list[int]:
        """The partitions of a full request, which is not answered."""
        nonlocal now
        deadline = fetcher.next_deadline()
        assert deadline is not None and (deadline <= now or fetcher.next_request(now) is None)
        now = max(now, deadline)
        request = fetcher.next_request(now)
        assert isinstance(request, FetchRequest) and request.session_epoch == 0
        assert request.replica_state.replica_epoch == fetcher.broker_epoch
        fetcher.failed(now)
        assert fetcher.next_deadline() == now + BACKOFF_MS
        return [each.partition for topic in request.topics for each in topic.partitions]

    all_but_first = [*range(1, MANY)]
    assert retry() == all_but_first and len(looks) == 2 * len(all_but_first)
    looks.clear()
    fetcher.broker_epoch = incarnation(3)
    assert [retry() for _ in range(3)] == [all_but_first] * 3
    assert looks == []
    fetcher.follow(followers[0])
    assert fetcher.next_deadline() == AT_ONCE, "the metadata have something new: the leader may be there again"
    assert sorted(retry()) == [*range(MANY)]
    fetcher.leave(followers[1])
    assert sorted(retry()) == [0, *range(2, MANY)]
    for each in followers:
        fetcher.leave(each)
    assert fetcher.next_request(now + BACKOFF_MS) is None and fetcher.next_request(now + BACKOFF_MS) is None
