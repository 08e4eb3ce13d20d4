"""BAS: the steps that nearly every other requirement takes first.

Each step is judged separately before the other requirements, with the APIs that the target's profile offers. A requirement that
fails in such a step counts as blocked if the basic requirement fails as well.
"""

from typing import Any

from conformance.answers import only
from conformance.batches import batch, idempotent, values
from conformance.broker import EARLIEST, LATEST, Broker
from conformance.classic_groups import Group
from conformance.committed_offsets import expect_committed, expect_offset
from conformance.consumers import joined, unused_group
from conformance.requirement import COPY_ON_ANOTHER_NODE, requirement
from conformance.transactions import TransactionalProducer
from conformance.wire import NoAnswer
from linearizability.client.requests import READ_COMMITTED, Topic
from reference.protocol.errors import ErrorCode

PATIENT_S = 60.0
"""How long the first request to a coordinator may take, which may still be loading."""


@requirement(
    "BAS-01",
    notices="stuck: every client finds brokers, topics and leaders by Metadata; without it none gets past its start",
    source="KIP-35; Metadata API",
    sentence="ApiVersions and Metadata are answered, and Metadata lists at least one broker.",
    accepted="error NONE(0), at least one broker with an address",
    deadline_s=PATIENT_S,
)
def brokers_are_listed(broker: Broker) -> None:
    broker.expect_served(what="ApiVersions v0 is answered")
    brokers = broker.metadata([]).brokers
    broker.expect(
        all(one.host and one.port > 0 for one in brokers) and bool(brokers),
        f"{len(brokers)} brokers are listed, at least one, each with host and port",
    )


@requirement(
    "BAS-02",
    notices="stuck: a client waits until the topic that was made has a leader",
    source="KIP-4; CreateTopics and Metadata APIs",
    sentence="A topic of one partition can be made, and soon Metadata names its leader, which answers for it.",
    accepted="error NONE(0), then a leader",
    deadline_s=PATIENT_S,
)
def topic_is_made(broker: Broker) -> None:
    topic = broker.topic()
    found = broker.describe_topic(topic.name)
    broker.expect(all(one.leader_id >= 0 for one in found.partitions), "each partition has a leader")


@requirement(
    "BAS-03",
    notices="data: a record that the broker acknowledged has this offset",
    source="Produce API",
    sentence="Valid records are accepted, with the offsets of an empty partition first.",
    accepted="error NONE(0), base offsets 0 and then 2 for batches of two and one",
)
def records_are_accepted(broker: Broker) -> None:
    topic = broker.topic()
    broker.expect_equal("the first base offset", broker.append(topic, batch(b"one", b"two")), 0)
    broker.expect_equal("the second base offset", broker.append(topic, batch(b"three")), 2)


@requirement(
    "BAS-04",
    notices="data: a consumer reads what was written",
    source="Fetch API",
    sentence="A fetch from the start of a partition gives the records that were accepted, in their order.",
    accepted="the same values in the same order",
)
def records_are_fetched(broker: Broker) -> None:
    topic = broker.topic()
    for value in (b"one", b"two", b"three"):
        broker.append(topic, batch(value))
    broker.expect_equal("the records", values(broker.log(topic)), [b"one", b"two", b"three"])


@requirement(
    "BAS-05",
    notices="misread: a consumer without a position begins at the offset that ListOffsets gives",
    source="ListOffsets API",
    sentence="ListOffsets gives the start and the end of a partition.",
    accepted="0 and 0 for an empty partition, 0 and 2 after two records",
    apis={"ListOffsets": 1},
)
def offsets_are_listed(broker: Broker) -> None:
    topic = broker.topic()

    def listed() -> tuple[int, int]:
        return broker.offset_of(topic, EARLIEST).offset, broker.offset_of(topic, LATEST).offset

    broker.expect_equal("start and end", listed(), (0, 0))
    broker.append(topic, batch(b"one", b"two"))
    broker.expect_equal("start and end", listed(), (0, 2))


@requirement(
    "BAS-06",
    notices="stuck: a consumer of a group waits until it knows the coordinator",
    source="FindCoordinator API",
    sentence="FindCoordinator names the coordinator of a group that no client has used.",
    accepted="error NONE(0) and an address, after a time of COORDINATOR_NOT_AVAILABLE(15) at most",
    apis={"FindCoordinator": 0},
    deadline_s=PATIENT_S,
)
def coordinator_is_found(broker: Broker) -> None:
    host, port = broker.coordinator(broker.unused_name("group"))
    broker.expect(bool(host) and port > 0, "the coordinator has an address")


@requirement(
    "BAS-07",
    notices="stuck: a consumer is given partitions only once it is in a generation",
    source="Kafka protocol guide, group membership",
    sentence="A lone member joins a classic group, is its leader, is given what it assigns to itself, beats, and leaves.",
    accepted="error NONE(0) for each step, its own assignment",
    apis={"JoinGroup": 0, "SyncGroup": 0, "Heartbeat": 0, "LeaveGroup": 0},
    requires=("BAS-06",),
    deadline_s=PATIENT_S,
)
def member_joins(broker: Broker) -> None:
    group = Group(broker)
    (member,) = group.stable(1)
    broker.expect_equal("the heartbeat's error", member.heartbeat(), 0)
    broker.expect_equal("the leave's error", member.leave(), 0)


@requirement(
    "BAS-08",
    notices="data: a consumer goes on where its group's committed offset is",
    source="OffsetCommit and OffsetFetch APIs",
    sentence="An offset that is committed for a group without members is what OffsetFetch gives.",
    accepted="the committed offset",
    apis={"OffsetCommit": 1, "OffsetFetch": 0},
    requires=("BAS-02", "BAS-06"),
    deadline_s=PATIENT_S,
)
def offset_is_kept(broker: Broker) -> None:
    topic, group = broker.topic(), Group(broker)
    expect_committed(broker, group.name, {(topic, 0): 7})
    expect_offset(broker, group.name, topic, 7, "the committed offset")


@requirement(
    "BAS-09",
    notices="stuck: an idempotent producer, the default of Kafka's clients, sends nothing before it has a producer id",
    source="KIP-98",
    sentence="InitProducerId gives a producer id, with which a first batch is accepted.",
    accepted="an id and an epoch of 0 or more, base offset 0",
    apis={"InitProducerId": 0},
    since="0.11",
    deadline_s=PATIENT_S,
)
def producer_id_is_given(broker: Broker) -> None:
    topic = broker.topic()
    producer_id, epoch = broker.producer_id()
    broker.expect(producer_id >= 0 and epoch >= 0, f"0 or more are producer id {producer_id} and epoch {epoch}")
    broker.expect_equal("the base offset", broker.append(topic, idempotent([b"one"], producer_id, epoch, 0)), 0)


@requirement(
    "BAS-10",
    notices="data: a consumer of committed records reads what was committed, and all of it",
    source="KIP-98",
    sentence="A committed transaction of one record is visible to read_committed once it has ended.",
    accepted="the record, and no other",
    apis={"InitProducerId": 0, "AddPartitionsToTxn": 0, "EndTxn": 0, "Fetch": 4},
    since="0.11",
    requires=("BAS-02", "BAS-04"),
    deadline_s=PATIENT_S,
)
def transaction_is_committed(broker: Broker) -> None:
    topic, producer = broker.topic(), TransactionalProducer(broker)
    producer.append(topic, b"one")
    producer.end(committed=True)
    seen = broker.eventually(
        lambda: values(broker.log(topic, isolation=READ_COMMITTED)), "the committed record is visible to read_committed"
    )
    broker.expect_equal("the committed records", seen, [b"one"])


@requirement(
    "BAS-11",
    notices="stuck: a consumer with group.protocol=consumer waits for its assignment",
    source="KIP-848",
    sentence="A lone member of a KIP-848 group is given all partitions of the topic that it subscribes to.",
    accepted="an epoch above 0, then the assignment",
    apis={"ConsumerGroupHeartbeat": 0},
    since="4.0",
    requires=("BAS-02", "BAS-06"),
    deadline_s=PATIENT_S,
)
def consumer_is_assigned(broker: Broker) -> None:
    topic = broker.topic(2)
    (consumer,) = joined(broker, unused_group(broker), 1, [topic])
    broker.expect_equal("the partitions that it owns", len(consumer.held), topic.partitions)
    consumer.leave()


@requirement(
    "BAS-12",
    notices="tool: kafka-configs shows what a broker runs with",
    source="KIP-133",
    sentence="DescribeConfigs of a broker lists its configurations.",
    accepted="error NONE(0) and at least one configuration",
    apis={"DescribeConfigs": 0},
    since="0.11",
)
def configurations_are_described(broker: Broker) -> None:
    found = broker.broker_configs(None)
    broker.expect(bool(found), f"{len(found)} configurations, at least one, are described")


@requirement(
    "BAS-13",
    notices="data: what was deleted on purpose stays deleted",
    source="KIP-107",
    sentence="DeleteRecords moves the start of a partition.",
    accepted="the new start, also from ListOffsets",
    apis={"DeleteRecords": 0, "ListOffsets": 1},
    since="0.11",
    requires=("BAS-03", "BAS-05"),
)
def records_are_deleted(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"one", b"two"))
    broker.expect_equal("the low watermark", broker.delete_records(topic, 1), 1)
    broker.expect_equal("the start", broker.start_offset(topic), 1)


@requirement(
    COPY_ON_ANOTHER_NODE,
    notices="data: a record survives the loss of a node only as a copy on another one",
    source="KIP-392: a follower serves what it has below the high watermark",
    sentence="A record that was acknowledged with acks=-1 in a topic of two replicas is fetched from the follower.",
    accepted="the record, from the node that does not lead",
    nodes=2,
    apis={"Fetch": 11},
    since="2.4",
    requires=("BAS-02", "BAS-03"),
    deadline_s=PATIENT_S,
)
def copy_is_on_another_node(broker: Broker) -> None:
    nodes = {one.node_id: (one.host, one.port) for one in broker.metadata([]).brokers}
    broker.expect(len(nodes) > 1, f"Metadata lists {len(nodes)} brokers, at least two")
    name = broker.unused_name()
    made = broker.create_topic(name, configs=broker.subject.profile.retained, replication_factor=2)
    broker.expect_error(made.error_code, ErrorCode.NONE, what="a topic of two replicas")
    topic = broker.await_topic(name)
    broker.append(topic, batch(b"one"))
    leader = broker.leader_id(topic)
    replicas = only(broker.describe_topic(name).partitions, "partition").replica_nodes
    broker.expect_equal("how many replicas it has", len({*replicas} & nodes.keys()), 2)
    follower = next(node for node in replicas if node != leader)
    try:
        part = broker.eventually(lambda: _given_by(broker, topic, nodes[follower]), "the follower gives the record")
    except NoAnswer:
        part = broker.fetch(topic, 0, to=broker.connection(nodes[follower]))
    broker.expect_error(part.error_code, ErrorCode.NONE, what=f"a fetch from node {follower}, which follows")
    broker.expect_equal(f"what node {follower} has", values(bytes(part.records or b"")), [b"one"])


def _given_by(broker: Broker, topic: Topic, address: tuple[str, int]) -> Any:
    """A node's response to a consumer's fetch if it has a record and no error; else None."""
    part = broker.fetch(topic, 0, to=broker.connection(address))
    return part if part.error_code == ErrorCode.NONE and part.records else None
