"""IDM: producers and their open transactions, as DescribeProducers reports them."""

from typing import Any

from conformance.answers import AnswerParts, error_name, only
from conformance.batches import TRANSACTIONAL, idempotent, patched
from conformance.broker import Broker
from conformance.cluster import QUICK, cluster
from conformance.requirement import requirement
from conformance.requirements.idempotence import Producer
from conformance.steps import refused_by_epoch
from linearizability.client.requests import TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest


def active_producers(
    broker: Broker, topic: Topic, partition: int = 0, to: tuple[str, int] | None = None
) -> dict[int, Any]:
    """A partition's producers by id, as DescribeProducers reports them at the leader or at `to`."""
    asked = DescribeProducersRequest.TopicRequest(name=topic.name, partition_indexes=[partition])
    answer = broker.call(DescribeProducersRequest(topics=[asked]), to=to or broker.leader(topic, partition))
    found = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
    broker.expect_error(found.error_code, ErrorCode.NONE, what="DescribeProducers")
    return AnswerParts({one.producer_id: one for one in found.active_producers})


@requirement(
    "IDM-14",
    notices="tool: kafka-transactions describe-producers, with which hanging transactions are found",
    source="KIP-664; Partition.activeProducerState",
    sentence="DescribeProducers gives each producer that the partition knows, with its epoch and last sequence; an unknown "
    "partition is UNKNOWN_TOPIC_OR_PARTITION, and of a name that no topic can have INVALID_TOPIC_EXCEPTION.",
    accepted="exactly the producers that wrote, with epochs and last sequences, and -1 where no transaction is open; "
    "UNKNOWN_TOPIC_OR_PARTITION(3), INVALID_TOPIC_EXCEPTION(17) since 3.0 (KAFKA-12434)",
    since="2.8",
    apis={"DescribeProducers": 0},
)
def describe_producers(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.expect_equal("the producers of an empty partition", sorted(active_producers(broker, topic)), [])
    first, second = Producer(broker, topic), Producer(broker, topic)
    first.stored(0, 3)
    first.stored(3, 2)
    second.stored(0, 10, epoch=4)
    found = active_producers(broker, topic)
    seen = {
        id: (one.producer_epoch, one.last_sequence, one.current_txn_start_offset, one.last_timestamp > 0)
        for id, one in found.items()
    }
    wanted = {first.id: (first.epoch, 4, -1, True), second.id: (4, 9, -1, True)}
    broker.expect_equal("epoch, last sequence, start of transaction, has a timestamp", seen, wanted)
    broker.expect_equal("the producers of the other partition", sorted(active_producers(broker, topic, 1)), [])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION if broker.is_kafka("3.0") else unknown
    for what, name, partition, error in (
        ("an unknown partition", topic.name, topic.partitions, unknown),
        ("an unknown topic", broker.unused_name(), 0, unknown),
        ("a name that no topic can have", "no topic!", 0, invalid),
    ):
        asked = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[partition])
        answer = broker.call(DescribeProducersRequest(topics=[asked]), to=broker.leader(topic))
        missing = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
        broker.expect_error(missing.error_code, error, what=what)


@requirement(
    "IDM-17",
    notices="tool: kafka-transactions find-hanging finds the transaction to abort by this offset",
    source="KIP-664; Partition.activeProducerState",
    sentence="While a transaction is open, DescribeProducers gives the offset at which it began in the partition.",
    accepted="the offset of the transaction's first record; -1 once it has ended",
    since="2.8",
    apis={"DescribeProducers": 0, "AddPartitionsToTxn": 0, "EndTxn": 0},
)
def describe_open_transaction(broker: Broker) -> None:
    topic, name = broker.topic(), broker.unused_name("txn")
    Producer(broker, topic).stored(0, 2)
    coordinator = broker.coordinator(name, TRANSACTION)

    def begun() -> tuple[int, int] | None:
        answer = broker.call(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), to=coordinator
        )
        return (answer.producer_id, answer.producer_epoch) if answer.error_code == ErrorCode.NONE else None

    id, epoch = broker.eventually(begun, "the transactional producer has an id")
    part = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic.name, partitions=[0])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[part],
    )
    answer = broker.call(request, 3, to=coordinator)
    added = only(only(answer.results_by_topic_v3_and_below, "topic in the answer").results_by_partition, "partition")
    broker.expect_error(added.partition_error_code, ErrorCode.NONE, what="AddPartitionsToTxn")
    result = broker.produce(
        topic, patched(idempotent([b"t"], id, epoch, 0), attributes=TRANSACTIONAL), transactional_id=name
    )
    with refused_by_epoch("TXN-01"):
        broker.expect_error(result.error_code, ErrorCode.NONE, what="Produce in the transaction")
    found = active_producers(broker, topic)
    broker.expect(id in found, f"producer {id} is among {sorted(found)}")
    broker.expect_equal("the first offset of its transaction", found[id].current_txn_start_offset, result.base_offset)
    ended = broker.call(
        EndTxnRequest(transactional_id=name, producer_id=id, producer_epoch=epoch, committed=True), 4, to=coordinator
    )
    broker.expect(ended.error_code == ErrorCode.NONE, f"EndTxn succeeds: {error_name(ended.error_code)}")
    broker.eventually(
        lambda: not (found := active_producers(broker, topic).get(id)) or found.current_txn_start_offset == -1,
        "no transaction is open any more",
    )


@requirement(
    "IDM-18",
    notices="tool: `kafka-transactions describe-producers --broker-id` asks a follower for a producer that hangs there",
    source="KIP-664; ReplicaManager.activeProducerState",
    sentence="Every replica answers DescribeProducers from its own log, a follower as the leader; a broker without a replica "
    "answers NOT_LEADER_OR_FOLLOWER.",
    accepted="from the follower in sync the producer, epoch and last sequence that the leader gives; NOT_LEADER_OR_FOLLOWER(6)",
    since="2.8", apis={"DescribeProducers": 0},
    nodes=3, hooks=("pause", "resume"), configs=QUICK, deadline_s=180.0,
)  # fmt: skip
def describe_producers_of_a_follower(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, stranger = nodes.cast()
        topic = nodes.topic(leader, follower)
        producer = Producer(broker, topic)
        producer.stored(0, 3)
        producer.stored(3, 2)

        def known_to(node: int) -> list[tuple[int, int, int]]:
            found = active_producers(broker, topic, to=nodes.address(node)).values()
            return [(one.producer_id, one.producer_epoch, one.last_sequence) for one in found]

        broker.expect_equal("the leader's producers", known_to(leader), [(producer.id, producer.epoch, 4)])
        broker.eventually(lambda: known_to(follower) == known_to(leader), "the follower knows what its leader knows")
        asked = DescribeProducersRequest.TopicRequest(name=topic.name, partition_indexes=[0])
        answer = broker.call(DescribeProducersRequest(topics=[asked]), to=nodes.address(stranger))
        missing = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
        broker.expect_error(missing.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER, what="a broker without a replica")
