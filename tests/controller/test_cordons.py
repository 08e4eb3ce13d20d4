"""Log directories that take no new replicas (KIP-1066): a heartbeat's list is recorded when it differs from the last one."""

from __future__ import annotations

from reference.protocol.primitives import NodeId
from tests.controller.cluster import ControlledCluster, directory_of

FIRST, SECOND = NodeId(0), NodeId(1)


def test_an_empty_list_is_recorded_once_and_differs_from_no_list() -> None:
    """As in Apache Kafka 4.3.1, whose brokers send the list in each heartbeat; a snapshot keeps the difference."""
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
