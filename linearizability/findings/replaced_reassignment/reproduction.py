"""A reassignment that cannot complete yet is replaced by one without a replica that the first one added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linearizability.client.requests import new_topic
from linearizability.findings.waiting import await_true
from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire
from reference.protocol.errors import name_of
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.metadata import MetadataRequest

TOPIC = "t"
BEFORE, FIRST, SECOND = [1, 2, 3], [2, 4, 5], [2, 3, 5]
DEAD = 5
WITHIN_S = 60.0
ENDS_WITHIN_S = 20.0
"""The time from when all replicas are in sync; an ordinary reassignment completes at once."""


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder, config={"broker.session.timeout.ms": "3000"}) as target:
        if not isinstance(target, ClusterTarget) or target.size < DEAD:
            raise TargetError(f"{spec} is no cluster of {DEAD} nodes that is started here")
        with _wire(target) as wire:
            wire.call(CreateTopicsRequest(topics=[new_topic(TOPIC, placed=[BEFORE])], timeout_ms=30_000))
        target.kill(DEAD)
        for replicas in (FIRST, SECOND):
            seen.append(f"reassigned to {replicas}: {name_of(_reassign(target, replicas))}")
            seen.append(_described(target))
        target.restart(DEAD)
        await_true(lambda: {*SECOND} <= {*_in_sync(target)}, WITHIN_S)
        seen.append(f"in sync: {sorted(_in_sync(target))}")
        ended = await_true(lambda: _described(target) == ENDED, ENDS_WITHIN_S)
        seen.append(_described(target))
        return not ended, seen


ENDED = "no reassignment is under way"


def _wire(target: ClusterTarget) -> Wire:
    node = target.nodes[0]
    return Wire.connect(node.host, node.port, timeout_s=WITHIN_S)


def _reassign(target: ClusterTarget, replicas: list[int]) -> int:
    form: Any = AlterPartitionReassignmentsRequest
    partition = form.ReassignablePartition(partition_index=0, replicas=replicas)
    with _wire(target) as wire:
        answer = wire.call(form(timeout_ms=30_000, topics=[form.ReassignableTopic(name=TOPIC, partitions=[partition])]))
    return answer.error_code or answer.responses[0].partitions[0].error_code


def _described(target: ClusterTarget) -> str:
    with _wire(target) as wire:
        answer = wire.call(ListPartitionReassignmentsRequest(timeout_ms=30_000, topics=None))
    under_way = [each for topic in answer.topics for each in topic.partitions]
    if not under_way:
        return ENDED
    (one,) = under_way
    return f"replicas {one.replicas}, adding {one.adding_replicas}, removing {one.removing_replicas}"


def _in_sync(target: ClusterTarget) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    with _wire(target) as wire:
        found = wire.call(request).topics[0].partitions
    return [int(each) for each in found[0].isr_nodes] if found else []
