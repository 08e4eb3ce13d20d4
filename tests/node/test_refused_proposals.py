"""A leader retries a refused proposal after a pause, also if the controller is on its own node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reference.node.replication import PROPOSE_AGAIN_MS, Replication
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionResponse
from reference.protocol.primitives import TimestampMs
from reference.replication.fetcher import FetchSettings
from tests.replication.replicas import LAG_MS, NOW, incarnation
from tests.replication.serving import caught_up, produce

LATE = NOW + LAG_MS + 1


def test_a_refused_shrink_is_asked_for_again_after_a_while() -> None:
    """The response comes within the request: without a pause the leader would retry for ever."""
    partition, _ = caught_up()
    produce(partition)
    asked: list[tuple[int, list[int]]] = []

    def refuse(purpose: str, body: Any, answered: Any, now: TimestampMs) -> None:
        (topic,) = body.topics
        (wanted,) = topic.partitions
        asked.append((now, [member.broker_id for member in wanted.new_isr_with_epochs]))
        refusal = AlterPartitionResponse.PartitionData(partition_index=0, error_code=ErrorCode.INELIGIBLE_REPLICA)
        answer = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=[refusal])
        answered(AlterPartitionResponse(topics=[answer]), now)

    context: Any = SimpleNamespace(
        node=1,
        configuration=SimpleNamespace(integer=lambda name: LAG_MS),
        replicas=SimpleNamespace(partitions={partition.key: partition}),
        purgatories=SimpleNamespace(wake=lambda partition, now: None),
    )
    brokers: Any = None
    replication = Replication(context, brokers, refuse, lambda: incarnation(1), FetchSettings(), NOW)
    for now in (LATE, LATE + 1, LATE + PROPOSE_AGAIN_MS - 1, LATE + PROPOSE_AGAIN_MS):
        replication.tick(now)
    assert asked == [(LATE, [1, 3]), (LATE + PROPOSE_AGAIN_MS, [1, 3])]
