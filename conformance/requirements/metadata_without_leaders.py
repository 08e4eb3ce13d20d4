"""MET: partitions without live replicas, as Metadata reports them."""

from conformance.answers import only
from conformance.broker import Broker
from conformance.cluster import QUICK, cluster
from conformance.requirement import requirement
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.metadata import MetadataRequest

DEADLINE_S = 240
ENDS = ("kill", "restart")


@requirement(
    "MET-08",
    notices="client: it sends to a broker that is gone until its time is over, instead of asking again",
    source="KRaftMetadataCache.getPartitionMetadata",
    sentence="A partition of which no replica is alive is LEADER_NOT_AVAILABLE with leader -1; its replicas are listed all the "
    "same, "
    "from v5 on as offline too.",
    accepted="LEADER_NOT_AVAILABLE(5), leader -1, and the replica from v1 on; served again when the broker is back",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def without_a_leader(broker: Broker) -> None:
    with cluster(broker) as nodes:
        alone, _, _ = nodes.cast()
        topic = nodes.topic(alone)
        nodes.kill(alone)
        nodes.await_leaderless(topic)
        lowest, highest = broker.versions_of(MetadataRequest)
        asked = [MetadataRequest.MetadataRequestTopic(name=topic.name)]
        for version in range(lowest, highest + 1):
            found = only(broker.metadata(asked, version=version).topics, "topic in the answer")
            broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}: the topic")
            one = only(found.partitions, "partition in the answer")
            broker.expect_error(one.error_code, ErrorCode.LEADER_NOT_AVAILABLE, what=f"v{version}: the partition")
            broker.expect_equal("the leader", one.leader_id, -1)
            if version >= 1:  # v0 leaves out the replicas that are not there
                broker.expect_equal("the replicas", list(one.replica_nodes), [alone])
            if version >= 5:
                broker.expect_equal("offline replicas", list(one.offline_replicas), [alone])
        nodes.restart(alone)
        nodes.await_leader(topic, alone)
