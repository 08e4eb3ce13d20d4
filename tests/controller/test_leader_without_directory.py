"""A partition whose leader is lost while its broker runs."""

from reference.controller.image import NO_LEADER
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId
from tests.controller.cluster import TOPIC, topic_id_of
from tests.controller.test_decision_tracing import TracingCluster


def test_the_failure_of_a_log_directory_is_traced_as_no_step_of_the_specification() -> None:
    """No broker is fenced, and no replica elected. Found by a simulated run: copies, three nodes, seed 41600003."""
    cluster = TracingCluster()
    lost = PartitionChangeRecord(
        topic_id=topic_id_of(TOPIC), partition_id=0, leader=NO_LEADER, isr=[], eligible_leader_replicas=[NodeId(0)]
    )
    cluster.write([lost])
    assert [action for action, _ in cluster.reported] == ["End"], cluster.reported
