"""What operators do to a cluster that works: none of it hurts, and all of it moves leaders, replicas or files.

A request that the cluster does not carry out in time is given up: the next fault finds the cluster as it is.
"""

import time
from typing import Any

from linearizability.client.requests import new_topic
from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message

ASK_TIMEOUT_S = 2.0
WISH_WITHIN_S = 6.0
SHORT_SEGMENT_MS = 500
"""A busy log rolls twice a second."""

AGAIN = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT})
"""Errors of a node that is not the controller, or could not reach it. To a change of voters, one that does not lead the quorum
returns NOT_LEADER_OR_FOLLOWER."""

TOPIC = 2
SET, DELETE = 0, 1
PREFERRED = 0


def wish(world: World, request: Message) -> Any:
    """Ask the nodes that are up, one after the other, until one answers with another error, or none.

    None when it was not carried out, or was refused.
    """
    until = time.monotonic() + WISH_WITHIN_S
    while time.monotonic() < until:
        for node in world.nodes:
            if node.id not in world.up:
                continue
            try:
                with Wire.connect(node.host, node.port, timeout_s=ASK_TIMEOUT_S) as wire:
                    answer = wire.call(request)
            except (WireError, ValueError):
                continue
            if getattr(answer, "error_code", ErrorCode.NONE) not in AGAIN:
                return answer
        time.sleep(0.1)
    return None


@register
class Reassign(Fault):
    """One partition loses one of its followers, and gets it back as the first of its replicas."""

    name = "reassign"
    nodes = 3
    apis = (AlterPartitionReassignmentsRequest,)

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        view = world.look()
        if not view.partitions:
            return None
        number = list(view.partitions)[int(injection.pick * len(view.partitions))]
        partition = view.partitions[number]
        followers = [replica for replica in partition.replicas if replica != partition.leader]
        if len(followers) < 2:
            return None
        spared = followers[int(injection.pick * 7919) % len(followers)]
        rest = [replica for replica in partition.replicas if replica != spared]
        if wish(world, _reassignment(world.topic, number, rest)) is None:
            return None
        return {"partition": number, "spared": spared, "replicas": [spared, *rest]}

    def end(self, world: World, done: dict[str, Any]) -> None:
        wish(world, _reassignment(world.topic, done["partition"], done["replicas"]))


def _reassignment(topic: str, number: int, replicas: list[int]) -> AlterPartitionReassignmentsRequest:
    request = AlterPartitionReassignmentsRequest
    wanted = request.ReassignablePartition(partition_index=number, replicas=[*map(NodeId, replicas)])
    return request(
        topics=[request.ReassignableTopic(name=topic, partitions=[wanted])], timeout_ms=int(ASK_TIMEOUT_S * 1000)
    )


@register
class Elect(Fault):
    """All partitions go back to their preferred leaders."""

    name = "elect"
    nodes = 2
    apis = (ElectLeadersRequest,)

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=None, timeout_ms=int(ASK_TIMEOUT_S * 1000)
        )
        return None if wish(world, request) is None else {}

    def end(self, world: World, done: dict[str, Any]) -> None:
        """Nothing: an election needs no healing."""


@register
class Reconfigure(Fault):
    """Segments are short for a while: logs roll, and old segments are closed."""

    name = "reconfigure"
    apis = (IncrementalAlterConfigsRequest,)

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        answer = wish(world, _segment_ms(world.topic, SET))
        return None if answer is None else {"segment_ms": SHORT_SEGMENT_MS}

    def end(self, world: World, done: dict[str, Any]) -> None:
        wish(world, _segment_ms(world.topic, DELETE))


def _segment_ms(topic: str, operation: int) -> IncrementalAlterConfigsRequest:
    value = str(SHORT_SEGMENT_MS) if operation == SET else None
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="segment.ms", config_operation=operation, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


@register
class Bystander(Fault):
    """Another topic comes and goes, with replicas on the same nodes."""

    name = "bystander"
    apis = (CreateTopicsRequest, DeleteTopicsRequest)

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        name = f"{world.topic}-bystander"
        topic = new_topic(name, len(world.nodes), replication_factor=min(len(world.nodes), 3))
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(ASK_TIMEOUT_S * 1000))
        return None if wish(world, request) is None else {"topic": name}

    def end(self, world: World, done: dict[str, Any]) -> None:
        name = done["topic"]
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        wish(world, DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=int(ASK_TIMEOUT_S * 1000)))
