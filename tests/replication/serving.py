"""A leader's side of the wire, for fetchers: requests as bytes in, responses as bytes out."""

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from reference.node.fetch_sessions import FetchSessions
from reference.protocol.codec import decode, encode
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from reference.protocol.primitives import NO_OFFSET, Offset, TimestampMs
from reference.replication.partition import Partition
from reference.replication.proposal import AcceptedIsr, Proposal, ProposalOutcome
from reference.replication.reading import FollowerFetch
from reference.storage.errors import LogError
from tests.replication.replicas import ALL, NOW, Registry, batch, bytes_of, fetch, leader

FETCH_VERSION, LIST_OFFSETS_VERSION = 18, 10

Find = Callable[[UUID | str, int], Partition | None]
Request = FetchRequest | ListOffsetsRequest
Response = FetchResponse | ListOffsetsResponse


class LeaderSide:
    """Answers the fetchers of other nodes."""

    def __init__(self, find: Find, slots: int = 10) -> None:
        """`find` takes a topic's id or name, and an index."""
        self._find = find
        self.sessions = FetchSessions(slots, random.Random(1))

    def answer(self, request: Request, now: TimestampMs) -> Response:
        """The decoded response to an encoded request."""
        if isinstance(request, FetchRequest):
            asked = decode(FetchRequest, FETCH_VERSION, encode(request, FETCH_VERSION))
            return decode(FetchResponse, FETCH_VERSION, encode(self._fetch(asked, now), FETCH_VERSION))
        asked = decode(ListOffsetsRequest, LIST_OFFSETS_VERSION, encode(request, LIST_OFFSETS_VERSION))
        return decode(ListOffsetsResponse, LIST_OFFSETS_VERSION, encode(self._list(asked), LIST_OFFSETS_VERSION))

    def _fetch(self, request: FetchRequest, now: TimestampMs) -> FetchResponse:
        context = self.sessions.context(request, FETCH_VERSION, now)
        if context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=context.error)
        results = [self._read(wanted, request, now) for wanted in context.wanted]
        return self.sessions.finish(context, FETCH_VERSION, results, now)

    def _read(self, wanted: Any, request: FetchRequest, now: TimestampMs) -> FetchResponse.PartitionData:
        data = FetchResponse.PartitionData(partition_index=wanted.partition, records=b"", high_watermark=NO_OFFSET)
        partition = self._find(wanted.topic_id, wanted.partition)
        if partition is None:
            data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return data
        state = request.replica_state
        try:
            asked = FollowerFetch(
                state.replica_id,
                state.replica_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.current_leader_epoch,
                wanted.max_bytes,
                True,
                wanted.log_start_offset,
            )
            read = partition.require_leader(asked.asked_epoch).answer_fetch(asked, now)
        except (KafkaError, LogError) as error:
            data.error_code = error.code
            return data
        data.high_watermark, data.log_start_offset = read.high_watermark, read.log_start_offset
        data.records = bytes_of(read.records)
        if read.diverging is not None:
            epoch, end = read.diverging
            data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
        return data

    def _list(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = []
            for wanted in topic.partitions:
                data = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answers.append(data)
                partition = self._find(topic.name, wanted.partition_index)
                try:
                    if partition is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    leading = partition.require_leader(wanted.current_leader_epoch)
                    data.offset = leading.list_offset(
                        wanted.timestamp, False, for_replica=request.replica_id >= 0
                    ).offset
                except KafkaError as error:
                    data.error_code = error.code
            response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return response


def produce(replica: Partition, count: int = 1, *, now: TimestampMs = NOW, acks: int = -1) -> Offset:
    """Append records; return the new log end offset."""
    return replica.produce(batch(*[b"x"] * count), now, required_acks=acks).last_offset + 1


def caught_up(isr: Sequence[int] = ALL, **settings: Any) -> tuple[Partition, Registry]:
    """A leader with one record that all followers of the ISR have."""
    registry = Registry()
    replica = leader(isr, registry, **settings)
    end = produce(replica)
    for member in isr[1:]:
        fetch(replica, member, end, last_epoch=5)
    assert replica.high_watermark == end
    return replica, registry


def answer(replica: Partition, proposal: Proposal, *, now: TimestampMs = NOW, **changes: Any) -> ProposalOutcome | None:
    said: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 11, "isr": proposal.isr, **changes}
    error = said.pop("error", ErrorCode.NONE)
    return replica.require_leader().proposal_answered(proposal, error, now, AcceptedIsr(**said))
