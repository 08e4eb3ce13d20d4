"""TOP: adding partitions, deleting records and deleting topics. A refused request changes nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from conformance.answers import AnswerParts, only
from conformance.batches import Record, batch, values
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.requirements.topics import (
    BY_ID,
    TIMEOUT_MS,
    UNKNOWN_BROKER,
    delete,
    delete_by_name,
    existing,
    node_ids,
)
from conformance.wire import BrokerConnection
from linearizability.client.requests import Topic, delete_topics_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.delete_records import DeleteRecordsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID


def grow(
    broker: Broker,
    counts: Mapping[str, int] | Sequence[tuple[str, int]],
    *,
    assignments: list[list[int]] | None = None,
    validate_only: bool = False,
    version: int | None = None,
) -> list[Any]:
    """The results of CreatePartitions for topics with these new counts."""
    pairs = list(counts.items()) if isinstance(counts, Mapping) else list(counts)
    replicas = CreatePartitionsRequest.CreatePartitionsAssignment
    by_hand = None if assignments is None else [replicas(broker_ids=ids) for ids in assignments]
    asked = [
        CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=by_hand)
        for name, count in pairs
    ]
    request = CreatePartitionsRequest(topics=asked, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    return broker.call(request, version).results


def delete_records(broker: Broker, topic: Topic, offset: int, partition: int = 0, version: int | None = None) -> Any:
    """The result of DeleteRecords for one partition."""
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=topic.name, partitions=[part])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    answer = broker.call(request, version, to=broker.leader(topic))
    return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")


def made_again(broker: Broker, name: str) -> Topic:
    """Create a topic with the name of a deleted one; with ZooKeeper the name may still be in use for a while."""

    def made() -> bool:
        answer = broker.create_topic(name, configs={"retention.ms": "-1"})
        if answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS or broker.by_kraft():
            broker.expect_error(answer.error_code, ErrorCode.NONE, what="making it again")
        return answer.error_code == ErrorCode.NONE

    broker.eventually(made, f"{name} can be made again")
    return broker.await_topic(name)


def expect_partitions(broker: Broker, topic: Topic, count: int) -> None:
    """Expect that Metadata lists exactly this number of partitions."""
    found = sorted(one.partition_index for one in broker.describe_topic(topic.name).partitions)
    broker.expect_equal("its partitions", found, list(range(count)))


@requirement(
    "TOP-14",
    notices="tool: Java's Admin.deleteTopics and all tools on it report these codes to their user",
    source="ControllerApis.deleteTopics; KIP-516",
    sentence="A topic to be deleted that does not exist is UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID; one named by "
    "both or by neither, or that comes twice, is refused with INVALID_REQUEST and stays.",
    accepted="3 for an unknown name, 100 for an unknown id, 42 for both, neither and twice (by name, by id, by name and id), "
    "in one result; with ZooKeeper one that comes twice is deleted",
    apis={"DeleteTopics": BY_ID},
)
def what_cannot_be_deleted(broker: Broker) -> None:
    topic = broker.topic()
    name, id, unused = topic.name, broker.id_of(topic), broker.unused_name()
    unknown = UUID(int=id.int ^ 0xFFFF)
    unknown_ones = (
        ("an unknown name", [(unused, NO_UUID)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("an unknown id", [(None, unknown)], ErrorCode.UNKNOWN_TOPIC_ID),
    )
    ambiguous = (
        ("both name and id", [(name, id)], ErrorCode.INVALID_REQUEST),
        ("neither name nor id", [(None, NO_UUID)], ErrorCode.INVALID_REQUEST),
        ("an unknown name twice", [(unused, NO_UUID), (unused, NO_UUID)], ErrorCode.INVALID_REQUEST),
        ("a name twice", [(name, NO_UUID), (name, NO_UUID)], ErrorCode.INVALID_REQUEST),
        ("an id twice", [(None, id), (None, id)], ErrorCode.INVALID_REQUEST),
        ("a topic by name and by id", [(name, NO_UUID), (None, id)], ErrorCode.INVALID_REQUEST),
    )
    for what, asked, error in unknown_ones + (ambiguous if broker.by_kraft() else ()):
        with broker.case(what):
            broker.expect_error(only(delete(broker, *asked), "result").error_code, error)
            broker.expect(name in existing(broker), "the topic is still there")
    broker.append(topic, batch(b"x"))


@requirement(
    "TOP-15",
    since="2.1",
    notices="data: topics are deleted although the administrator forbade it",
    source="ControllerApis.deleteTopics; delete.topic.enable; KAFKA-5975 (no answer before 2.1)",
    sentence="With delete.topic.enable=false nothing is deleted: TOPIC_DELETION_DISABLED, below v3 INVALID_REQUEST.",
    accepted="TOPIC_DELETION_DISABLED(73), in v1 and v2 INVALID_REQUEST(42); the topic stays",
    configs={"delete.topic.enable": "false"},
)
def deletion_disabled(broker: Broker) -> None:
    topic = broker.topic()
    lowest, highest = broker.versions_of(DeleteTopicsRequest)
    for version in range(lowest, highest + 1):
        with broker.case(f"v{version}"):
            answer = broker.call(delete_topics_request([topic.name], version), version)
            result = only(answer.responses, "result")
            wanted = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
            broker.expect_error(result.error_code, wanted)
            broker.expect(topic.name in existing(broker), "the topic is still there")


@requirement(
    "TOP-16",
    notices="misread: a consumer reads records of the deleted topic in the new one, or goes on by its old id",
    source="ReplicationControlManager.deleteTopic; KIP-516",
    sentence="A deleted topic is unknown to Metadata, Produce and Fetch, by name and by id; made again it is empty, begins at "
    "offset 0 and has another id, and its old id stays unknown.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3) by name, UNKNOWN_TOPIC_ID(100) by id; the new topic with its own records only",
    exclusive=True,
)
def after_deletion(broker: Broker) -> None:
    topic = broker.topic(2)
    for value in (b"a", b"b"):
        broker.append(topic, batch(value))
    leader = broker.connection(broker.leader(topic))
    delete_by_name(broker, topic.name)
    expect_unknown(broker, topic, leader)
    again = made_again(broker, topic.name)
    broker.expect(again.id != topic.id or topic.id == NO_UUID, f"the new id {again.id} is another than {topic.id}")
    broker.expect_equal("start and end", (broker.start_offset(again), broker.end_offset(again)), (0, 0))
    expect_unknown(broker, topic, leader, by_name=False)
    broker.expect_equal("the first offset", broker.append(again, batch(b"c")), 0)
    broker.expect_equal("the records", values(broker.log(again)), [b"c"])


def expect_unknown(broker: Broker, topic: Topic, leader: BrokerConnection, *, by_name: bool = True) -> None:
    """Wait until the former leader does not know a deleted topic, neither by id nor, with `by_name`, by name."""

    def produce(version: int) -> Any:
        return broker.produce(topic, batch(b"x"), version=version, to=leader)

    def fetch(version: int) -> Any:
        return broker.fetch(topic, 0, version=version, to=leader)

    for table, first_by_id, ask in ((ProduceRequest, 13, produce), (FetchRequest, 13, fetch)):
        lowest, highest = broker.versions_of(table)
        if by_name and lowest < first_by_id:
            version = min(highest, first_by_id - 1)
            awaited_error(broker, ask, version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{table.__name__} by name")
        if highest >= first_by_id:
            awaited_error(broker, ask, highest, ErrorCode.UNKNOWN_TOPIC_ID, f"{table.__name__} by id")


def awaited_error(broker: Broker, ask: Callable[[int], Any], version: int, error: ErrorCode, what: str) -> None:
    """Wait until the partition's result is this error: the broker may learn of a deletion after its metadata does."""
    broker.eventually(lambda: ask(version).error_code == error, f"{what} (v{version}) is answered with {error.name}")
    broker.saw(f"{what} (v{version}): {error.name}")


@requirement(
    "TOP-17",
    notices="tool: kafka-topics --alter learns what is wrong, and nothing shrinks",
    source="ReplicationControlManager.createPartitions; ControllerApis.createPartitions",
    sentence="CreatePartitions refuses a count that is no growth (INVALID_PARTITIONS), an unknown topic "
    "(UNKNOWN_TOPIC_OR_PARTITION), replicas by hand that do not fit (INVALID_REPLICA_ASSIGNMENT), and a topic that comes twice "
    "(INVALID_REQUEST).",
    accepted="37, 3, 39 and 42, and the topic has as many partitions as before",
)
def impossible_growth(broker: Broker) -> None:
    broker.version_for(CreatePartitionsRequest)
    topic, node = broker.topic(3), node_ids(broker)[0]
    now = topic.partitions
    for count in (now, now - 1, 1, 0, -1):
        with broker.case(f"from {now} to {count} partitions"):
            result = only(grow(broker, {topic.name: count}), "result")
            broker.expect_error(result.error_code, ErrorCode.INVALID_PARTITIONS)
    with broker.case("an unknown topic"):
        name = broker.unused_name()
        result = only(grow(broker, {name: 3}), "result")
        broker.expect_error(result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker.expect(name not in existing(broker), "the topic was not created")
    for what, assignments in {
        "replicas for one of two": [[node]],
        "replicas for three of two": [[node]] * 3,
        "a broker twice": [[node], [node, node]],
        "an unknown broker": [[node], [UNKNOWN_BROKER]],
        "no broker": [[node], []],
    }.items():
        with broker.case(what):
            result = only(grow(broker, {topic.name: now + 2}, assignments=assignments), "result")
            broker.expect_error(result.error_code, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    with broker.case("a topic twice"):
        result = only(grow(broker, [(topic.name, now + 1), (topic.name, now + 2)]), "result")
        broker.expect_error(result.error_code, ErrorCode.INVALID_REQUEST)
    expect_partitions(broker, topic, now)


@requirement(
    "TOP-18",
    notices="data: records are lost or move to another partition",
    source="KIP-195; ReplicationControlManager.createPartitions",
    sentence="A topic that grows keeps its old partitions with their records and leaders; the new ones are empty, begin at "
    "offset 0 and take records.",
    accepted="in every version: the old records, the old leaders, new partitions from offset 0 on; the id stays",
)
def growth(broker: Broker) -> None:
    topic = broker.topic(2)
    for partition in (0, 1):
        broker.append(topic, batch(b"%d" % partition), partition=partition)
    before = AnswerParts({one.partition_index: one.leader_id for one in broker.describe_topic(topic.name).partitions})
    lowest, highest = broker.versions_of(CreatePartitionsRequest)
    count = 2
    for version in range(lowest, highest + 1):
        count += 2
        result = only(grow(broker, {topic.name: count}, version=version), "result")
        broker.expect_error(result.error_code, ErrorCode.NONE, what=f"v{version}: {count} partitions")
        broker.expect_equal(f"v{version}: the id", broker.await_topic(topic.name, count).id, topic.id)
    expect_partitions(broker, topic, count)
    after = AnswerParts({one.partition_index: one.leader_id for one in broker.describe_topic(topic.name).partitions})
    broker.expect_equal("the leaders of the old partitions", {p: after[p] for p in before}, before)
    for partition in range(2, count):
        offset = broker.append(topic, batch(b"%d" % partition), partition=partition)
        broker.expect_equal(f"the first offset in partition {partition}", offset, 0)
    held = [values(broker.log(topic, partition=partition)) for partition in range(count)]
    broker.expect_equal("the records", held, [[b"%d" % partition] for partition in range(count)])


@requirement(
    "TOP-19",
    notices="data: more is removed than was asked, or consumers below the start wait for ever",
    source="KIP-107; Partition.deleteRecordsOnLeader",
    sentence="DeleteRecords moves the log start to the given offset, -1 to the high watermark; fetches below it are "
    "OFFSET_OUT_OF_RANGE, what is above stays; an offset beyond the high watermark or below -1 is OFFSET_OUT_OF_RANGE and moves "
    "nothing.",
    accepted="the answer's low watermark and the log start are the offset; OFFSET_OUT_OF_RANGE(1) else; "
    "an offset below the log start leaves it where it is; UNKNOWN_TOPIC_OR_PARTITION(3) for an unknown partition",
    tolerated="a low watermark other than -1 beside an error",
    apis={"DeleteRecords": 0},
)
def records_deleted(broker: Broker) -> None:
    topic = broker.topic()
    sent = [b"%d" % number for number in range(10)]
    broker.append(topic, batch(*sent[:6]))
    for value in sent[6:]:
        broker.append(topic, batch(value))
    lowest, highest = broker.versions_of(DeleteRecordsRequest)
    for asked, start, version in ((7, 7, lowest), (7, 7, highest), (3, 7, highest), (0, 7, highest), (8, 8, highest)):
        expect_start(broker, topic, delete_records(broker, topic, asked, version=version), start, f"up to {asked}")
    broker.expect_equal("what is left", values(broker.log(topic, offset=8)), sent[8:])
    for offset in (0, 7):
        fetched = broker.fetch(topic, offset)
        broker.expect_error(fetched.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, what=f"a fetch at {offset}")
    for beyond in (11, 2**62, -2, -(2**63)):
        result = delete_records(broker, topic, beyond)
        broker.expect_error(result.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, what=f"up to {beyond}")
        if result.low_watermark != -1:
            broker.tolerate(f"its low watermark is {result.low_watermark} and not -1")
        broker.expect_equal("the log start offset", broker.start_offset(topic), 8)
    expect_start(broker, topic, delete_records(broker, topic, -1), 10, "up to -1")
    broker.expect_equal("the next offset", broker.append(topic, batch(b"x")), 10)
    broker.expect_equal("the records", values(broker.log(topic, offset=10)), [b"x"])
    unknown = delete_records(broker, topic, 0, partition=5)
    broker.expect_error(unknown.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="an unknown partition")


def expect_start(broker: Broker, topic: Topic, result: Any, start: int, what: str) -> None:
    """Expect that DeleteRecords succeeded, and that the log starts at this offset."""
    broker.expect_error(result.error_code, ErrorCode.NONE, what=what)
    broker.expect_equal("the low watermark", result.low_watermark, start)
    broker.expect_equal("the log start offset", broker.start_offset(topic), start)


@requirement(
    "TOP-20",
    notices="operator: kafka-delete-records takes the last values of keys away from a compacted topic",
    source="Partition.deleteRecordsOnLeader; cleanup.policy",
    sentence="DeleteRecords on a topic whose cleanup policy does not delete is refused with POLICY_VIOLATION.",
    accepted="POLICY_VIOLATION(44) and the log start stays for 'compact'; NONE(0) for 'compact,delete'",
    apis={"DeleteRecords": 0},
)
def compacted_topics_keep_records(broker: Broker) -> None:
    for policy in ("compact", "compact,delete"):
        with broker.case(policy):
            topic = broker.topic(configs={"cleanup.policy": policy})
            broker.append(topic, batch(Record(b"v", key=b"a"), Record(b"v", key=b"b")))
            result = delete_records(broker, topic, 1)
            if policy == "compact":
                broker.expect_error(result.error_code, ErrorCode.POLICY_VIOLATION)
                broker.expect_equal("the log start offset", broker.start_offset(topic), 0)
            else:
                expect_start(broker, topic, result, 1, "up to 1")


@requirement(
    "TOP-23",
    notices="tool: Java's Admin.deleteTopics by id, which spares a topic that was made again under the name",
    source="KIP-516; ControllerApis.deleteTopics",
    sentence="From v6 on a topic can be deleted by its id, and the answer names it.",
    accepted="NONE(0) with name and id in the answer; the topic is gone, another one stays",
    since="2.8",
    apis={"DeleteTopics": BY_ID},
    exclusive=True,
)
def deleted_by_id(broker: Broker) -> None:
    topic, other = broker.topic(), broker.topic()
    result = only(delete(broker, (None, broker.id_of(topic))), "result")
    broker.expect_error(result.error_code, ErrorCode.NONE)
    broker.expect_equal("name and id in the answer", (result.name, result.topic_id), (topic.name, topic.id))
    broker.eventually(lambda: topic.name not in existing(broker), "the deleted topic leaves the metadata")
    broker.expect(other.name in existing(broker), "the other topic is still there")


@requirement(
    "TOP-24",
    notices="tool: a rehearsal with validateOnly makes partitions, which no client can take away again",
    source="CreatePartitionsRequest schema (validateOnly); ControllerApis.createPartitions",
    sentence="CreatePartitions with validate_only checks and changes nothing; replicas by hand that fit are kept.",
    accepted="NONE(0) for a growth and INVALID_PARTITIONS(37) for none, and the count stays; then two partitions on the "
    "brokers that were asked for",
)
def growth_by_hand(broker: Broker) -> None:
    topic, nodes = broker.topic(2), node_ids(broker)
    for count, error in ((4, ErrorCode.NONE), (2, ErrorCode.INVALID_PARTITIONS)):
        result = only(grow(broker, {topic.name: count}, validate_only=True), "result")
        broker.expect_error(result.error_code, error, what=f"validating {count} partitions")
        expect_partitions(broker, topic, 2)
    result = only(grow(broker, {topic.name: 4}, assignments=[[nodes[-1]], [nodes[0]]]), "result")
    broker.expect_error(result.error_code, ErrorCode.NONE, what="replicas by hand")
    broker.await_topic(topic.name, 4)
    found = AnswerParts(
        {one.partition_index: one.replica_nodes for one in broker.describe_topic(topic.name).partitions}
    )
    broker.expect_equal("the new partitions' replicas", (found[2], found[3]), ([nodes[-1]], [nodes[0]]))
