"""Which listener the requirements of authentication ask, where the quorum has several nodes."""

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.sasl import unauthenticated
from conformance.wire import Failed
from reference.protocol.messages.describe_quorum import DescribeQuorumResponse


def quorum(leader_id: int, *nodes: int) -> DescribeQuorumResponse:
    table = DescribeQuorumResponse
    partition = table.PartitionData(leader_id=leader_id)
    listeners = {node: [table.Listener(name="CONTROLLER", host=f"host-{node}", port=9000 + node)] for node in nodes}
    return table(
        topics=[table.TopicData(topic_name="__cluster_metadata", partitions=[partition])],
        nodes=[table.Node(node_id=node, listeners=listeners[node]) for node in nodes],
    )


def connected(answer: DescribeQuorumResponse) -> tuple[str, int]:
    broker: Any = SimpleNamespace(call=lambda *_: answer, connect=lambda address: address)
    found: Any = unauthenticated(broker)
    return found


def test_the_listener_of_the_controller_that_leads_is_asked() -> None:
    assert connected(quorum(1, 1)) == ("host-1", 9001)
    assert connected(quorum(2, 1, 2, 3)) == ("host-2", 9002)


def test_a_leader_that_is_not_listed_is_a_failure() -> None:
    with pytest.raises(Failed, match="node that leads the quorum"):
        connected(quorum(4, 1, 2, 3))
