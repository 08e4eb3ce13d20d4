"""Builders of requests from topics, partitions, offsets and groups.

A topic is given by its name, or with its id as a `Topic`: newer versions carry the one, older ones the other. Partitions are
grouped by topic in the order given, unless they are to stand `apart`, each in an entry of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack
from uuid import UUID

from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_records import DeleteRecordsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_delete import OffsetDeleteRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from reference.protocol.primitives import NO_UUID, Buffer, NodeId

ALL_REPLICAS = -1
"""acks=all."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
WAITS_MS = 10_000
"""How long a broker may wait for others before it answers."""
MOST_BYTES = 50 << 20
LEAST_WAIT_MS = 1
"""The max wait of a fetch that is not to wait."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its id."""

    name: str
    id: UUID
    partitions: int


TopicPartition: TypeAlias = tuple[Any, int]
"""A topic, by name or as `Topic`, and a partition's number."""


class FetchFrom(NamedTuple):
    """Where a fetch of one partition begins."""

    offset: int
    leader_epoch: int = -1
    """The current one, as the client knows it (KIP-320)."""
    last_fetched_epoch: int = -1
    """The leader epoch of the record before the offset (KIP-595)."""


class ProduceParams(TypedDict, total=False):
    """The parameters of a Produce besides its records."""

    acks: int
    timeout_ms: int
    transactional_id: str | None


class FetchParams(TypedDict, total=False):
    """The waits and limits of a fetch: Kafka's FetchParams."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    """Limit of the whole answer."""
    partition_max_bytes: int
    isolation: int
    """READ_UNCOMMITTED, or READ_COMMITTED."""


class Committed(NamedTuple):
    """A partition's committed offset, or one to commit."""

    offset: int
    metadata: str | None = ""
    leader_epoch: int = -1


def by_topic(partitions: Iterable[TopicPartition], apart: bool = False) -> list[tuple[Any, list[int]]]:
    """Partitions by topic, in the order given."""
    if apart:
        return [(topic, [index]) for topic, index in partitions]
    found: dict[Any, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return [*found.items()]


def _name_and_id(topic: str | Topic) -> dict[str, Any]:
    return (
        {"name": topic, "topic_id": NO_UUID} if isinstance(topic, str) else {"name": topic.name, "topic_id": topic.id}
    )


# ---- topics


def new_topic(
    name: str,
    partitions: int = 1,
    *,
    configs: Mapping[str, str] | None = None,
    replication_factor: int = 1,
    placed: Sequence[Sequence[int]] | None = None,
) -> CreateTopicsRequest.CreatableTopic:
    """One topic of a CreateTopics request. `placed` are the replicas of each partition, where they are chosen."""
    config, place = CreateTopicsRequest.CreatableTopicConfig, CreateTopicsRequest.CreatableReplicaAssignment
    assignments = [
        place(partition_index=index, broker_ids=[NodeId(id) for id in ids]) for index, ids in enumerate(placed or ())
    ]
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions if placed is None else -1,
        replication_factor=replication_factor if placed is None else -1,
        assignments=assignments,
        configs=[config(name=key, value=value) for key, value in (configs or {}).items()],
    )


# ---- records


def delete_topics_request(names: Collection[str], version: int) -> DeleteTopicsRequest:
    """A DeleteTopics request by name."""
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=WAITS_MS)
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(topics=[state(name=name, topic_id=NO_UUID) for name in names], timeout_ms=WAITS_MS)


def produce_request(batches: Mapping[TopicPartition, Buffer | None], **params: Unpack[ProduceParams]) -> ProduceRequest:
    """Produce to partitions; unless said otherwise acknowledged by all in-sync replicas."""
    data = ProduceRequest.PartitionProduceData
    topics = [
        ProduceRequest.TopicProduceData(
            **_name_and_id(topic),
            partition_data=[data(index=index, records=batches[topic, index]) for index in indexes],
        )
        for topic, indexes in by_topic(batches)
    ]
    return ProduceRequest(
        transactional_id=params.get("transactional_id"),
        acks=params.get("acks", ALL_REPLICAS),
        timeout_ms=params.get("timeout_ms", WAITS_MS),
        topic_data=topics,
    )


def produced(answer: Any) -> Any:
    """The result of the only partition that was produced to."""
    ((result,),) = (topic.partition_responses for topic in answer.responses)
    return result


def fetch_request(
    wanted: Mapping[TopicPartition, FetchFrom | int],
    *,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Mapping[Topic, list[int]] | None = None,
    **params: Unpack[FetchParams],
) -> FetchRequest:
    """A consumer's fetch of partitions; without a session unless one is given. The epochs are for partitions without one."""
    partition_max_bytes = params.get("partition_max_bytes", MOST_BYTES)
    topics: dict[Any, FetchRequest.FetchTopic] = {}
    for (topic, index), begin in wanted.items():
        if topic not in topics:
            named = _name_and_id(topic)
            topics[topic] = FetchRequest.FetchTopic(topic=named["name"], topic_id=named["topic_id"], partitions=[])
        if not isinstance(begin, FetchFrom):
            begin = FetchFrom(begin, current_leader_epoch, last_fetched_epoch)
        topics[topic].partitions.append(
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=begin.offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=begin.leader_epoch,
                last_fetched_epoch=begin.last_fetched_epoch,
                log_start_offset=-1,
            )
        )
    return FetchRequest(
        max_wait_ms=params.get("max_wait_ms", LEAST_WAIT_MS),
        min_bytes=params.get("min_bytes", 1),
        max_bytes=params.get("max_bytes", MOST_BYTES),
        isolation_level=params.get("isolation", READ_UNCOMMITTED),
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[*topics.values()],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[*indexes])
            for topic, indexes in (forgotten or {}).items()
        ],
    )


def list_offsets_request(
    timestamps: Mapping[tuple[str, int], int],
    *,
    isolation: int = READ_UNCOMMITTED,
    leader_epochs: Mapping[tuple[str, int], int] | None = None,
    apart: bool = True,
) -> ListOffsetsRequest:
    """A consumer's ListOffsets of partitions, by timestamp."""
    epochs = leader_epochs or {}
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=index,
                    timestamp=timestamps[name, index],
                    current_leader_epoch=epochs.get((name, index), -1),
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(timestamps, apart)
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)


def delete_records_request(before: Mapping[tuple[str, int], int], timeout_ms: int = WAITS_MS) -> DeleteRecordsRequest:
    """Delete the records of partitions below an offset."""
    partition = DeleteRecordsRequest.DeleteRecordsPartition
    topics = [
        DeleteRecordsRequest.DeleteRecordsTopic(
            name=name, partitions=[partition(partition_index=index, offset=before[name, index]) for index in indexes]
        )
        for name, indexes in by_topic(before)
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


# ---- committed offsets


def delete_offsets_request(group: str, partitions: Collection[tuple[str, int]]) -> OffsetDeleteRequest:
    """Ask for the removal of a group's committed offsets."""
    named = OffsetDeleteRequest.OffsetDeleteRequestTopic
    place = OffsetDeleteRequest.OffsetDeleteRequestPartition
    topics = [
        named(name=topic, partitions=[place(partition_index=index) for index in indices])
        for topic, indices in by_topic(partitions)
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, Committed | int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    retention_time_ms: int = -1,
    apart: bool = False,
) -> OffsetCommitRequest:
    """OffsetCommit for partitions; with a generation or member epoch, and a member, where said."""
    table = OffsetCommitRequest
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_time_ms,
        topics=_committed(table.OffsetCommitRequestTopic, table.OffsetCommitRequestPartition, offsets, apart),
    )


def transactional_commit_request(
    transactional_id: str,
    identity: tuple[int, int],
    group: str,
    offsets: Mapping[TopicPartition, Committed | int],
    *,
    apart: bool = False,
    **member: Any,
) -> TxnOffsetCommitRequest:
    """TxnOffsetCommit for partitions. `identity` is producer id and epoch; `member` are the request's fields that name one."""
    table = TxnOffsetCommitRequest
    topics = _committed(table.TxnOffsetCommitRequestTopic, table.TxnOffsetCommitRequestPartition, offsets, apart)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=topics,
        **member,
    )


def _committed(
    topic_table: Any, table: Any, offsets: Mapping[TopicPartition, Committed | int], apart: bool
) -> list[Any]:
    def place(index: int, value: Committed | int) -> Any:
        offset, metadata, epoch = value if isinstance(value, Committed) else Committed(value)
        return table(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )

    return [
        topic_table(**_name_and_id(topic), partitions=[place(index, offsets[topic, index]) for index in indexes])
        for topic, indexes in by_topic(offsets, apart)
    ]


def fetch_offsets_request(
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
    apart: bool = False,
) -> OffsetFetchRequest:
    """OffsetFetch for groups, from version 8 on; None asks for all that a group has committed."""
    asked = [
        OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            member_id=member_id,
            member_epoch=member_epoch,
            topics=None
            if partitions is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopics(**_name_and_id(topic), partition_indexes=indexes)
                for topic, indexes in by_topic(partitions, apart)
            ],
        )
        for group, partitions in groups.items()
    ]
    return OffsetFetchRequest(groups=asked, require_stable=require_stable)


def fetch_offsets_of_one(
    group: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """OffsetFetch below version 8, which asks for one group."""
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=_name_and_id(topic)["name"], partition_indexes=indexes)
        for topic, indexes in by_topic(partitions or ())
    ]
    return OffsetFetchRequest(
        group_id=group, topics=None if partitions is None else topics, require_stable=require_stable
    )
