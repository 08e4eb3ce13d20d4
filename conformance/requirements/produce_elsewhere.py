"""PRD: Produce requests to a broker that does not lead the partition."""

from conformance.answers import only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import QUICK, cluster
from conformance.requirement import requirement
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.produce import ProduceRequest

DEADLINE_S = 90
WITH_LEADER = 10
"""The first version of Produce whose response names the current leader (KIP-951)."""


@requirement(
    "PRD-02",
    notices="data: records that a follower took are lost when it next follows its leader",
    source="KafkaApis.handleProduceRequest; ReplicaManager.appendRecordsToLeader; KIP-951",
    sentence="A broker that does not lead the partition refuses a Produce with NOT_LEADER_OR_FOLLOWER and stores nothing; from "
    "v10 on it names the leader, its epoch and its address.",
    accepted="NOT_LEADER_OR_FOLLOWER(6) and base offset -1 from a follower and from a broker that has no replica, in every "
    "version; the log end stays",
    tolerated="another base offset beside the error: PRD-27 speaks of it; no leader, or none of its addresses: "
    "clients ask for metadata then",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S, requires=("BAS-14",),
)  # fmt: skip
def produce_elsewhere(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, stranger = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"a"))
        lowest, highest = broker.versions_of(ProduceRequest)
        for version in range(max(lowest, 3), highest + 1):
            for node in (follower, stranger):
                request = produce_to(topic, version)
                answer = broker.call(request, version, to=nodes.address(node))
                found = only(only(answer.responses, "topic in the answer").partition_responses, "partition")
                broker.expect_error(
                    found.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER, what=f"v{version} at node {node}"
                )
                if found.base_offset != -1:
                    broker.tolerate(
                        f"v{version} at node {node}: the base offset of a response with an error is {found.base_offset}"
                    )
                if version >= WITH_LEADER:
                    reported = (found.current_leader.leader_id, found.current_leader.leader_epoch)
                    nodes.expect_leader_named(topic, reported, answer.node_endpoints)
        broker.expect_equal("the log", values(broker.log(topic)), [b"a"])


def produce_to(topic: Topic, version: int) -> ProduceRequest:
    """A request with one record and acks=1, so that a follower that appends it could respond at once."""
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"elsewhere"))
    named = ProduceRequest.TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[named])
