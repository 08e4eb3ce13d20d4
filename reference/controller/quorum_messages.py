"""The messages between members of the quorum; each has one topic with one partition, `__cluster_metadata-0`.

This module builds and reads them; a message about another partition is refused. Source: org.apache.kafka.raft.RaftUtil.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from reference.controller.quorum_log import IN_LINE, Comparison, Verdict
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import (
    FIRST_EPOCH,
    FIRST_OFFSET,
    NO_NODE,
    NO_OFFSET,
    NO_UUID,
    Buffer,
    LeaderEpoch,
    NodeId,
    Offset,
)
from reference.protocol.schema import Message, Records
from reference.storage.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID

PARTITION = 0

VotersRequest = TypeVar("VotersRequest", VoteRequest, BeginQuorumEpochRequest)
VoterResponse = TypeVar("VoterResponse", bound=VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse)


ABOUT_THE_PARTITION: dict[type[Message], type[Message]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
}
"""The requests whose responses name the leader of the metadata partition."""


class Asker(NamedTuple):
    """The sender of a request."""

    cluster_id: str
    node: NodeId
    directory: UUID
    epoch: LeaderEpoch


# ---- the one partition


def of_metadata(topics: Sequence[Any]) -> Any | None:
    """The metadata partition's entry in a message's topics; None if there is any other entry, or none."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    name = getattr(topic, "topic_name", None)
    if name is None:
        name = topic.name
    return partition if name == METADATA_TOPIC and _index(partition) == PARTITION else None


def of_metadata_by_id(topics: Sequence[Any]) -> Any | None:
    """As `of_metadata` for fetches, which have the topic's id; versions before 13 have none (Kafka 4.3.1 refuses them)."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    return partition if topic.topic_id == METADATA_TOPIC_ID and _index(partition) == PARTITION else None


def answered(response: Any) -> Any | None:
    """The metadata partition's entry in a response; None if it has none, or an error at its top level."""
    if response.error_code != ErrorCode.NONE:
        return None
    return (
        of_metadata_by_id(response.responses) if isinstance(response, FetchResponse) else of_metadata(response.topics)
    )


def bytes_of(field: Records) -> Buffer:
    """The bytes of a received records field; empty for null."""
    return cast(Buffer, field) if isinstance(field, bytes | bytearray | memoryview) else b""


def _index(partition: Any) -> int:
    for name in ("partition_index", "partition", "index"):
        found = getattr(partition, name, None)
        if found is not None:
            return found
    return NO_NODE


# ---- Vote


def vote_request(asker: Asker, voter: NodeId, last: tuple[LeaderEpoch, Offset], *, pre_vote: bool) -> VoteRequest:
    """Request a voter's vote or pre-vote. `last` is the candidate's last epoch and its log end offset."""
    partition = VoteRequest.PartitionData(
        replica_epoch=asker.epoch,
        replica_id=asker.node,
        replica_directory_id=asker.directory,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=asker.cluster_id, voter_id=voter, topics=[topic])


def meant_for(request: VotersRequest, directory: UUID) -> VotersRequest:
    """Set the directory of the voter that a request is for, so that the same node with another directory refuses it."""
    request.topics[0].partitions[0].voter_directory_id = directory
    return request


def vote_response(error: ErrorCode, epoch: LeaderEpoch, leader: NodeId, *, granted: bool) -> VoteResponse:
    response = voter_response(VoteResponse, error, epoch, leader)
    response.topics[0].partitions[0].vote_granted = granted
    return response


# ---- BeginQuorumEpoch and EndQuorumEpoch


def begin_request(asker: Asker, voter: NodeId) -> BeginQuorumEpochRequest:
    """Announces the leader to a voter."""
    partition = BeginQuorumEpochRequest.PartitionData(leader_id=asker.node, leader_epoch=asker.epoch)
    topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return BeginQuorumEpochRequest(cluster_id=asker.cluster_id, voter_id=voter, topics=[topic])


def end_request(asker: Asker, successors: Sequence[tuple[NodeId, UUID]]) -> EndQuorumEpochRequest:
    """Informs a voter that the leader has resigned; `successors` are voters and their directories, the preferred first."""
    partition = EndQuorumEpochRequest.PartitionData(
        leader_id=asker.node,
        leader_epoch=asker.epoch,
        preferred_successors=[id for id, _ in successors],
        preferred_candidates=[
            EndQuorumEpochRequest.ReplicaInfo(candidate_id=id, candidate_directory_id=directory)
            for id, directory in successors
        ],
    )
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return EndQuorumEpochRequest(cluster_id=asker.cluster_id, topics=[topic])


def successors_in(partition: EndQuorumEpochRequest.PartitionData) -> list[tuple[NodeId, UUID]]:
    """The preferred successors and their directories, from the field of either version."""
    named = [(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    return named or [(id, NO_UUID) for id in partition.preferred_successors]


def voter_response(form: type[VoterResponse], error: ErrorCode, epoch: LeaderEpoch, leader: NodeId) -> VoterResponse:
    """A voter's response to Vote, BeginQuorumEpoch or EndQuorumEpoch, with its epoch and leader."""
    of = cast(Any, form)
    partition = of.PartitionData(error_code=error, leader_id=leader, leader_epoch=epoch)
    return of(topics=[of.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])


# ---- Fetch


def fetch_request(
    asker: Asker, last: tuple[LeaderEpoch, Offset], high_watermark: Offset, *, max_wait_ms: int, max_bytes: int
) -> FetchRequest:
    """A fetch from a log's end; `high_watermark` is the follower's (KIP-1166)."""
    partition = FetchRequest.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=asker.epoch,
        fetch_offset=last[1],
        last_fetched_epoch=last[0],
        replica_directory_id=asker.directory,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=asker.cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=asker.node),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[FetchRequest.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def replica_of(request: FetchRequest) -> NodeId:
    """The replica id of a fetch, from the field of either version; -1 for a consumer."""
    return max(request.replica_id, request.replica_state.replica_id)


def fetch_response(
    error: ErrorCode,
    epoch: LeaderEpoch,
    leader: NodeId,
    *,
    high_watermark: Offset = NO_OFFSET,
    log_start: Offset = NO_OFFSET,
    records: bytes = b"",
    compared: Comparison = IN_LINE,
) -> FetchResponse:
    """A leader's response, or a refusal with the member's epoch and leader."""
    _, known_epoch, known_end = compared
    partition = FetchResponse.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        records=records,
    )
    if compared.verdict is Verdict.DIVERGING:
        partition.diverging_epoch = FetchResponse.EpochEndOffset(epoch=known_epoch, end_offset=known_end)
    if compared.verdict is Verdict.SNAPSHOT:
        partition.snapshot_id = FetchResponse.SnapshotId(epoch=known_epoch, end_offset=known_end)
    topic = FetchResponse.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return FetchResponse(responses=[topic])


# ---- FetchSnapshot


def fetch_snapshot_request(
    asker: Asker, id: tuple[LeaderEpoch, Offset], position: int, max_bytes: int
) -> FetchSnapshotRequest:
    """Request the next piece of a snapshot."""
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=asker.epoch,
        position=position,
        replica_directory_id=asker.directory,
        snapshot_id=FetchSnapshotRequest.SnapshotId(epoch=id[0], end_offset=id[1]),
    )
    topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotRequest(cluster_id=asker.cluster_id, replica_id=asker.node, max_bytes=max_bytes, topics=[topic])


def fetch_snapshot_response(
    error: ErrorCode,
    epoch: LeaderEpoch,
    leader: NodeId,
    *,
    id: tuple[LeaderEpoch, Offset] = (FIRST_EPOCH, FIRST_OFFSET),
    size: int = 0,
    position: int = 0,
    data: bytes = b"",
) -> FetchSnapshotResponse:
    """A piece of a snapshot, or a refusal with the member's epoch and leader."""
    partition = FetchSnapshotResponse.PartitionSnapshot(
        index=PARTITION,
        error_code=error,
        size=size,
        position=position,
        unaligned_records=data,
        snapshot_id=FetchSnapshotResponse.SnapshotId(epoch=id[0], end_offset=id[1]),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
    )
    topic = FetchSnapshotResponse.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return FetchSnapshotResponse(topics=[topic])


# ---- DescribeQuorum


def describe_response(partition: DescribeQuorumResponse.PartitionData) -> DescribeQuorumResponse:
    """The response with the leader's view of the quorum; the caller adds the nodes' addresses."""
    topic = DescribeQuorumResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic])


def unknown_described(body: DescribeQuorumRequest) -> DescribeQuorumResponse | None:
    """The refusal of a request for other partitions than the metadata log's one; None for a request for exactly that."""
    asked = [(topic.topic_name, each.partition_index) for topic in body.topics for each in topic.partitions]
    if asked == [(METADATA_TOPIC, 0)] and len(body.topics) == 1:
        return None
    refused = DescribeQuorumResponse.PartitionData
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    refused(partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


# ---- AddRaftVoter, RemoveRaftVoter


def change_response(
    request: AddRaftVoterRequest | RemoveRaftVoterRequest, code: ErrorCode | int, message: str | None = None
) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
    form = AddRaftVoterResponse if isinstance(request, AddRaftVoterRequest) else RemoveRaftVoterResponse
    return form(error_code=code, error_message=message or "")
