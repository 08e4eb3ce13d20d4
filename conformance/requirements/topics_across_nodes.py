"""TOP: any broker administers topics, and deleted topics stay deleted."""

from conformance.answers import only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.requirement import requirement
from linearizability.client.requests import delete_topics_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest

DEADLINE_S = 240
ENDS = ("kill", "restart")


@requirement(
    "TOP-21",
    notices="misread: records that were deleted, as for privacy, are read again after a fail-over",
    source="KIP-107; Partition.deleteRecordsOnLeader, lowWatermarkIfLeader",
    sentence="What DeleteRecords deleted stays deleted when another replica leads: the log start does not go back.",
    accepted="the same log start offset under the next leader, OFFSET_OUT_OF_RANGE(1) below it, the records from it on",
    nodes=3, hooks=ENDS, configs=QUICK, apis={"DeleteRecords": 0}, deadline_s=DEADLINE_S,
)  # fmt: skip
def deleted_records_stay_deleted(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        for number in range(6):
            broker.append(topic, batch(b"%d" % number))
        broker.expect_equal("the low watermark", broker.delete_records(topic, 4), 4)
        epoch = nodes.state(topic).epoch
        nodes.kill(leader)
        nodes.await_leader(topic, follower, above=epoch)
        broker.expect_equal("the log start under the next leader", broker.start_offset(topic), 4)
        below = broker.fetch(topic, 3).error_code
        broker.expect_error(below, ErrorCode.OFFSET_OUT_OF_RANGE, what="a fetch below the log start")
        broker.expect_equal("the records", values(broker.log(topic, offset=4)), [b"4", b"5"])


@requirement(
    "TOP-22",
    notices="tool: kafka-topics says that a topic is made or deleted, and it is not",
    source="KIP-590 (forwarding); KafkaApis.handleCreateTopicsRequest",
    sentence="Each broker makes and deletes topics, or answers NOT_CONTROLLER and changes nothing.",
    accepted="NONE(0), and the topic is there, or gone, for every broker; or NOT_CONTROLLER(41), as Kafka with ZooKeeper "
    "answers, "
    "and nothing has changed; at least one broker does it",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
    exclusive=True,
)  # fmt: skip
def administered_by_any(broker: Broker) -> None:
    broker.needs_deletion()
    with cluster(broker) as nodes:
        made: list[str] = []
        for node, address in sorted(nodes.addresses.items()):
            broker.entrance, name = address, broker.unused_name()
            code = broker.create_topic(name).error_code
            broker.expect_error(code, ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, what=f"CreateTopics at node {node}")
            expect_known(broker, nodes, name, code == ErrorCode.NONE)
            made += [name] if code == ErrorCode.NONE else []
        broker.expect(bool(made), f"{len(made)} of {len(nodes.addresses)} brokers made a topic")
        version, deleted = broker.version_for(DeleteTopicsRequest), 0
        for node, address in sorted(nodes.addresses.items()):
            broker.entrance, name = address, made[-1]
            answer = broker.call(delete_topics_request([name], version), version)
            code = only(answer.responses, "result").error_code
            broker.expect_error(code, ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, what=f"DeleteTopics at node {node}")
            expect_known(broker, nodes, name, code != ErrorCode.NONE)
            if code == ErrorCode.NONE:
                made.pop()
                deleted += 1
            if not made:
                break
        broker.expect(deleted > 0, f"{deleted} topics were deleted")
        broker.entrance = None


def expect_known(broker: Broker, nodes: JudgedCluster, name: str, wanted: bool) -> None:
    """Wait until every broker's Metadata lists the topic, or none does."""
    for node, address in sorted(nodes.addresses.items()):

        def reported(address: tuple[str, int] = address) -> bool:
            listed = {one.name for one in broker.metadata(None, to=address).topics}
            return (name in listed) == wanted

        what = f"node {node} {'knows' if wanted else 'does not know'} {name}"
        broker.eventually(reported, what, within_s=STATE_WITHIN_S)
