"""Log directories that take no new replicas (KIP-1066): what a heartbeat says of them is written down when it is news."""

from __future__ import annotations

from reference.protocol.primitives import NodeId
from tests.controller.cluster import ControlledCluster, directory_of

FIRST, SECOND = NodeId(0), NodeId(1)


def test_that_there_are_none_is_written_once_and_is_not_the_same_as_not_said() -> None:
    """As by Apache Kafka 4.3.1, whose brokers say it in each heartbeat; a snapshot keeps the difference."""
    cluster = ControlledCluster()
    for broker in (FIRST, SECOND):
        cluster.register(cluster.registration(broker))
        cluster.heartbeat(broker)
    assert cluster.image.brokers[FIRST].cordoned_directories is None
    cluster.heartbeat(FIRST, cordoned_log_dirs=[])
    assert cluster.image.brokers[FIRST].cordoned_directories == [] and cluster.written != []
    cluster.heartbeat(FIRST, cordoned_log_dirs=[])
    assert cluster.written == []
    cluster.heartbeat(FIRST, cordoned_log_dirs=None)
    assert cluster.image.brokers[FIRST].cordoned_directories == [] and cluster.written == []
    cluster.heartbeat(FIRST, cordoned_log_dirs=[directory_of(FIRST)])
    assert cluster.image.brokers[FIRST].cordoned_directories == [directory_of(FIRST)]
    assert cluster.image.brokers[SECOND].cordoned_directories is None
