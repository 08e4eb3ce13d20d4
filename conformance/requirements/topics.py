"""TOP: topic administration. Topics are made, grown, emptied and deleted; what is refused leaves everything as it was."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from conformance.answers import AnswerParts, number, only
from conformance.batches import Record, batch, values
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.steps import built_on, directly
from conformance.wire import BrokerConnection, Failed
from linearizability.client.requests import Topic, delete_topics_request, new_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_records import DeleteRecordsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID, TopicName

ILLEGAL_NAMES = (
    "",
    ".",
    "..",
    "a" * 250,
    "slash/ed",
    "white space",
    "größe",
    "a\x00b",
    "semi;colon",
    "star*",
    "back\\",
)
DEFAULT = -1
"""Partitions, or a replication factor, as the broker's configuration says."""
UNKNOWN_BROKER = 99_999
TIMEOUT_MS = 10_000
BY_ID = 6
"""The version of DeleteTopics from which on topics may be named by their id."""
DYNAMIC_TOPIC, DEFAULT_SOURCE = 1, 5
"""Where a configuration comes from: it was set on the topic, or on nothing."""


# ---- saying


def create(
    broker: Broker, *topics: CreateTopicsRequest.CreatableTopic, version: int | None = None, validate_only: bool = False
) -> list[Any]:
    """CreateTopics; gives the results."""
    broker.subject.topics += [topic.name for topic in topics]
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    return broker.call(request, version).topics


def assigned(
    name: str,
    assignments: Sequence[tuple[int, Sequence[int]]],
    num_partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
) -> CreateTopicsRequest.CreatableTopic:
    """A topic with replicas by hand: (partition, brokers) each; count and factor are left to them unless said."""
    replicas = CreateTopicsRequest.CreatableReplicaAssignment
    return CreateTopicsRequest.CreatableTopic(
        name=TopicName(name),
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=[replicas(partition_index=partition, broker_ids=list(ids)) for partition, ids in assignments],
    )


def delete(broker: Broker, *topics: tuple[str | None, UUID], version: int | None = None) -> list[Any]:
    """DeleteTopics by (name, id), v6+; gives the results."""
    state = DeleteTopicsRequest.DeleteTopicState
    asked = [state(name=name, topic_id=id) for name, id in topics]
    return broker.call(DeleteTopicsRequest(topics=asked, timeout_ms=TIMEOUT_MS), version or BY_ID).responses


@built_on("TOP-16")
def delete_by_name(broker: Broker, *names: str) -> None:
    """Delete topics, and wait until Metadata does not know them."""
    version = broker.version_for(DeleteTopicsRequest)
    for result in broker.call(delete_topics_request(names, version), version).responses:
        broker.expect_error(result.error_code, ErrorCode.NONE, what=f"deleting {result.name}")
    broker.eventually(lambda: not existing(broker) & set(names), "the deleted topics leave the metadata")


def grow(
    broker: Broker,
    counts: Mapping[str, int] | Sequence[tuple[str, int]],
    *,
    assignments: list[list[int]] | None = None,
    validate_only: bool = False,
    version: int | None = None,
) -> list[Any]:
    """CreatePartitions for topics to these counts; gives the results."""
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
    """DeleteRecords of one partition; gives its result."""
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=topic.name, partitions=[part])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    answer = broker.call(request, version, to=broker.leader(topic))
    return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")


# ---- having and judging


def existing(broker: Broker) -> set[str]:
    """The names of all topics."""
    return {topic.name for topic in broker.metadata(None).topics}


def node_ids(broker: Broker) -> list[int]:
    """The ids of the brokers, of which there is at least one."""
    found = sorted(one.node_id for one in broker.metadata([]).brokers)
    broker.expect(bool(found), f"brokers {found}")
    return found


def expect_refused(broker: Broker, topic: Any, *accepted: ErrorCode, what: str = "", **options: Any) -> None:
    """CreateTopics for one topic is refused with one of the errors, and makes nothing."""
    result = only(create(broker, topic, **options), f"result for {topic.name!r}")
    try:
        broker.expect_error(result.error_code, *accepted, what=what)
        broker.expect(topic.name not in existing(broker), "there is no such topic")
    except Failed:
        if result.error_code == ErrorCode.NONE:  # what should not be there must not hinder later restarts of the target
            with suppress(Failed):
                delete_by_name(broker, topic.name)
        raise


def made_again(broker: Broker, name: str) -> Topic:
    """A topic of the name of one that was deleted; with ZooKeeper its name may be taken for a while longer."""

    def made() -> bool:
        answer = broker.create_topic(name, configs={"retention.ms": "-1"})
        if answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS or broker.by_kraft():
            broker.expect_error(answer.error_code, ErrorCode.NONE, what="making it again")
        return answer.error_code == ErrorCode.NONE

    broker.eventually(made, f"{name} can be made again")
    return broker.await_topic(name)


def expect_partitions(broker: Broker, topic: Topic, count: int) -> None:
    """The topic has so many partitions."""
    found = sorted(one.partition_index for one in broker.describe_topic(topic.name).partitions)
    broker.expect_equal("its partitions", found, list(range(count)))


@requirement(
    "TOP-01",
    notices="operator: a topic that no other Kafka takes, so that it cannot be mirrored or restored there",
    source="Topic.validate; ReplicationControlManager.validateNewTopicNames",
    sentence="A topic's name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'; any other "
    "is refused with INVALID_TOPIC_EXCEPTION.",
    accepted="INVALID_TOPIC_EXCEPTION(17) and no topic; names of 1 and 249 characters, and one of all kinds of them, are made",
)
def names(broker: Broker) -> None:
    for name in ILLEGAL_NAMES:
        with broker.case(f"{name[:20]!r}, {len(name)} characters"):
            expect_refused(broker, new_topic(name), ErrorCode.INVALID_TOPIC_EXCEPTION)
    unique = broker.unused_name()
    letter = next((letter for letter in "qxzjkQXZJK7890" if letter not in existing(broker)), "")
    if not letter:
        broker.skip("topics with all of fourteen names of one letter exist")
    for name in (letter, unique + "-" + "x" * (248 - len(unique)), f"AZ_az.09-{unique[-10:]}", "..." + unique[-10:]):
        with broker.case(f"{name[:30]!r}, {len(name)} characters"):
            broker.topic(name=name)
    delete_by_name(broker, letter)


@requirement(
    "TOP-02",
    notices="operator: metrics of the two topics have one name, as Kafka writes '.' as '_' there",
    source="Topic.hasCollision; ReplicationControlManager.validateNewTopicNames",
    sentence="A name that equals an existing one, but for '.' in the place of '_', is refused with INVALID_TOPIC_EXCEPTION.",
    accepted="INVALID_TOPIC_EXCEPTION(17) in both directions, and no such topic",
)
def colliding_names(broker: Broker) -> None:
    stem = broker.unused_name()
    for taken, wanted in ((f"{stem}.a", f"{stem}_a"), (f"{stem}_b.c", f"{stem}.b_c")):
        with broker.case(f"x{wanted[len(stem) :]} beside x{taken[len(stem) :]}"):
            broker.topic(name=taken)
            expect_refused(broker, new_topic(wanted), ErrorCode.INVALID_TOPIC_EXCEPTION)
    broker.topic(name=f"{stem}-a")


@requirement(
    "TOP-03",
    notices="data: what is made again loses its records; Streams and Connect make topics at each start and take this code",
    source="ReplicationControlManager.createTopics",
    sentence="A topic that exists is not made again: TOPIC_ALREADY_EXISTS, and it stays as it is.",
    accepted="TOPIC_ALREADY_EXISTS(36), with validate_only too; id, partitions and records stay",
)
def already_there(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.append(topic, batch(b"x"))
    for validate_only in (False, True):
        result = only(create(broker, new_topic(topic.name, 5), validate_only=validate_only), "result")
        broker.expect_error(
            result.error_code, ErrorCode.TOPIC_ALREADY_EXISTS, what=f"a second time, validate_only {validate_only}"
        )
    found = broker.describe_topic(topic.name)
    broker.expect_equal("the id and the number of partitions", (found.topic_id, len(found.partitions)), (topic.id, 2))
    broker.expect_equal("its records", values(broker.log(topic)), [b"x"])


@requirement(
    "TOP-04",
    notices="operator: a topic has fewer copies than was asked for, and no client was informed",
    source="ReplicationControlManager.createTopic",
    sentence="A partition count of 0 or below -1 is INVALID_PARTITIONS; a replication factor of 0, below -1, or above the "
    "number of brokers is INVALID_REPLICATION_FACTOR.",
    accepted="INVALID_PARTITIONS(37), INVALID_REPLICATION_FACTOR(38); no topic is made",
)
def impossible_counts(broker: Broker) -> None:
    for count in (0, -2, -2147483648):
        with broker.case(f"{count} partitions"):
            expect_refused(broker, new_topic(broker.unused_name(), count), ErrorCode.INVALID_PARTITIONS)
    for factor in (0, -2, len(node_ids(broker)) + 1, 32767):
        with broker.case(f"replication factor {factor}"):
            topic = new_topic(broker.unused_name(), replication_factor=factor)
            expect_refused(broker, topic, ErrorCode.INVALID_REPLICATION_FACTOR)


@requirement(
    "TOP-05",
    notices="stuck: Java's Admin, Streams and Connect leave both to the broker like this, and could make no topic",
    source="KIP-464; num.partitions, default.replication.factor",
    sentence="From v4 on, -1 for the partition count or the replication factor means the broker's default.",
    accepted="num.partitions partitions and default.replication.factor replicas, where they are described, each alone and both",
    since="2.4",
    apis={"CreateTopics": 4},
)
def broker_defaults(broker: Broker) -> None:
    names = ["num.partitions", "default.replication.factor"]
    held = broker.broker_configs(names)
    defaults = [number(value, name) if (value := held.get(name)) else None for name in names]
    for asked in ((DEFAULT, DEFAULT), (3, DEFAULT), (DEFAULT, 1)):
        with broker.case(f"{asked[0]} partitions, replication factor {asked[1]}"):
            topic = broker.topic(asked[0], replication_factor=asked[1])
            found = broker.describe_topic(topic.name).partitions
            seen = len(found), len(found[0].replica_nodes) if found else 0
            known = [default if given == DEFAULT else given for given, default in zip(asked, defaults, strict=True)]
            wanted = tuple(max(one, 1) if want is None else want for one, want in zip(seen, known, strict=True))
            broker.expect_equal("partitions and replicas", seen, wanted)


@requirement(
    "TOP-06",
    notices="none seen: kafka-topics and Java's NewTopic let no client give both",
    source="ReplicationControlManager.createTopic",
    sentence="Replicas by hand together with a partition count or a replication factor are refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42), also where the count or the factor fits; no topic is made",
)
def assignment_and_counts(broker: Broker) -> None:
    node = node_ids(broker)[0]
    for fields in ({"num_partitions": 1}, {"replication_factor": 1}, {"num_partitions": 1, "replication_factor": 1}):
        with broker.case(f"with {' and '.join(fields)}"):
            topic = assigned(broker.unused_name(), [(0, [node])], **fields)
            expect_refused(broker, topic, ErrorCode.INVALID_REQUEST)


@requirement(
    "TOP-07",
    notices="tool: kafka-topics --replica-assignment makes a topic with other replicas than asked for",
    source="ReplicationControlManager.validateManualPartitionAssignment",
    sentence="Replicas by hand are refused with INVALID_REPLICA_ASSIGNMENT where a broker comes twice or is unknown, where "
    "partitions have none or unequally many, are not numbered from 0 on, or come twice; right ones are kept.",
    accepted="INVALID_REPLICA_ASSIGNMENT(39) and no topic (unknown or no brokers, and doubles, with "
    "KRaft); for the right ones the replicas that were asked for",
)
def assignment_by_hand(broker: Broker) -> None:
    nodes = node_ids(broker)
    node = nodes[0]
    wrong: dict[str, list[tuple[int, list[int]]]] = {
        "a broker twice": [(0, [node, node])],
        "an unknown broker": [(0, [UNKNOWN_BROKER])],
        "a negative broker": [(0, [-1])],
        "no broker": [(0, [])],
        "unequally many": [(0, [node]), (1, [])],
        "partitions 0 and 2": [(0, [node]), (2, [node])],
        "partition 1 alone": [(1, [node])],
        "partition 0 twice": [(0, [node]), (0, [node])],
    }
    if not broker.by_kraft():  # with ZooKeeper these were taken, and waited for
        for what in ("an unknown broker", "a negative broker", "no broker", "partition 0 twice"):
            del wrong[what]
    if not broker.is_kafka("2.3"):  # KAFKA-7864
        del wrong["partitions 0 and 2"], wrong["partition 1 alone"]
    for what, assignments in wrong.items():
        with broker.case(what):
            topic = assigned(broker.unused_name(), assignments)
            expect_refused(broker, topic, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    with broker.case("right ones"):
        wanted = {0: nodes[::-1], 1: nodes}
        topic = assigned(broker.unused_name(), [(1, wanted[1]), (0, wanted[0])])
        result = only(create(broker, topic), "result")
        broker.expect_error(result.error_code, ErrorCode.NONE)
        broker.await_topic(topic.name, 2)
        found = AnswerParts(
            {one.partition_index: one.replica_nodes for one in broker.describe_topic(topic.name).partitions}
        )
        broker.expect_equal("the replicas", found, wanted)


@requirement(
    "TOP-08",
    notices="operator: a misspelled min.insync.replicas or cleanup.policy goes unnoticed",
    source="LogConfig.validate; ConfigurationControlManager",
    sentence="A configuration with an unknown name or an impossible value is refused with INVALID_CONFIG, and the topic is not "
    "made.",
    accepted="INVALID_CONFIG(40) and no topic; before 2.1 (KAFKA-7409) UNKNOWN_SERVER_ERROR(-1) too, retention.ms=-2 was allowed "
    "before 2.2 (KAFKA-7781) and any message.timestamp.type before 2.0 (KAFKA-6973)",
)
def impossible_configs(broker: Broker) -> None:
    codes = [ErrorCode.INVALID_CONFIG]
    if not broker.is_kafka("2.1"):
        codes.append(ErrorCode.UNKNOWN_SERVER_ERROR)
    for name, value, since in (
        ("no.such.config", "1", ""),
        ("retention.ms", "soon", ""),
        ("retention.ms", "-2", "2.2"),
        ("max.message.bytes", "-1", ""),
        ("min.insync.replicas", "0", ""),
        ("cleanup.policy", "shred", ""),
        ("compression.type", "zip", ""),
        ("unclean.leader.election.enable", "maybe", ""),
        ("message.timestamp.type", "NoTime", "2.0"),
        ("min.cleanable.dirty.ratio", "1.5", ""),
        ("segment.bytes", "1", ""),
        ("retention.ms", "", ""),
    ):
        if since and not broker.is_kafka(since):
            continue
        with broker.case(f"{name}={value}"):
            topic = new_topic(broker.unused_name(), configs={name: value, "segment.ms": "60000"})
            expect_refused(broker, topic, *codes)


@requirement(
    "TOP-09",
    notices="tool: a rehearsal with Java's CreateTopicsOptions.validateOnly makes the topic",
    source="CreateTopicsRequest schema (validateOnly, v1+); ReplicationControlManager.createTopics",
    sentence="With validate_only a topic is checked and answered for as otherwise, and not made.",
    accepted="NONE(0) for a right topic, the usual error for a wrong one; neither is there afterwards, and the right one can "
    "be made then",
    apis={"CreateTopics": 1},
)
def validate_only(broker: Broker) -> None:
    lowest, highest = broker.versions_of(CreateTopicsRequest)
    for version in (max(lowest, 1), highest):
        name = broker.unused_name()
        result = only(create(broker, new_topic(name, 3), version=version, validate_only=True), "result")
        broker.expect_error(result.error_code, ErrorCode.NONE, what=f"v{version}: a right topic")
        if version >= 5:
            broker.expect_equal(f"v{version}: its partitions in the answer", result.num_partitions, 3)
        with directly():
            broker.expect(name not in existing(broker), f"v{version}: it was not made")
        expect_refused(
            broker,
            new_topic(name, 0),
            ErrorCode.INVALID_PARTITIONS,
            what=f"v{version}: a wrong one",
            version=version,
            validate_only=True,
        )
        broker.topic(name=name)


@requirement(
    "TOP-10",
    notices="none seen: Java's Admin and librdkafka send each name once",
    source="ControllerApis.createTopics",
    sentence="A name that comes twice in one request is refused with INVALID_REQUEST; the other topics are made.",
    accepted="one result INVALID_REQUEST(42) for the name, NONE(0) for the other; only the other is there",
)
def twice_in_one_request(broker: Broker) -> None:
    twice, other = broker.unused_name(), broker.unused_name()
    results = create(broker, new_topic(twice), new_topic(other), new_topic(twice, 2))
    reported = [(result.name, result.error_code) for result in results]
    found = sorted(
        reported if broker.by_kraft() else set(reported)
    )  # with ZooKeeper, from 2.3 on, one result for each time
    wanted = sorted([(twice, ErrorCode.INVALID_REQUEST), (other, ErrorCode.NONE)])
    broker.expect_equal("the results", found, wanted)
    broker.await_topic(other)
    broker.expect(twice not in existing(broker), "the name that came twice is not there")


@requirement(
    "TOP-11",
    notices="tool: Java's CreateTopicsResult shows id, counts and configurations from this answer",
    source="KIP-525 (v5), KIP-516 (v7); ReplicationControlManager.createTopic",
    sentence="From v5 on the answer shows the partitions, the replication factor and the configurations in force, from v7 on "
    "the topic's id.",
    accepted="the numbers that were asked for; a configuration that was set with source 1, one that was not with source 5; the "
    "id that Metadata gives",
    since="2.4",
    apis={"CreateTopics": 5},
)
def details_in_the_answer(broker: Broker) -> None:
    for version in range(5, broker.version_for(CreateTopicsRequest) + 1):
        with broker.case(f"v{version}"):
            topic = new_topic(broker.unused_name(), 3, configs={"retention.ms": "12345"})
            result: CreateTopicsResponse.CreatableTopicResult = only(create(broker, topic, version=version), "result")
            broker.expect_error(result.error_code, ErrorCode.NONE)
            shape = result.num_partitions, result.replication_factor
            broker.expect_equal("partitions and replication factor", shape, (3, 1))
            configs = {one.name: (one.value, one.config_source, one.read_only) for one in result.configs or []}
            broker.expect_equal("retention.ms", configs.get("retention.ms"), ("12345", DYNAMIC_TOPIC, False))
            policy = ("delete", DEFAULT_SOURCE, False)
            broker.expect_equal("cleanup.policy", configs.get("cleanup.policy"), policy)
            if version >= 7:
                made = broker.await_topic(topic.name, 3)
                if made.id != NO_UUID:
                    broker.expect_equal("the id", result.topic_id, made.id)


@requirement(
    "TOP-12",
    notices="client: Streams makes all its topics in one request, and would wait for those beside a bad one",
    source="ReplicationControlManager.createTopics; ControllerApis.deleteTopics",
    sentence="Several topics in one request each have their own result: a bad one does not stop the others, neither when they "
    "are made nor when they are deleted.",
    accepted="NONE(0) for the good ones, each bad one with its error; the good ones are there, then gone",
)
def each_its_own(broker: Broker) -> None:
    good, bad = [broker.unused_name() for _ in range(2)], broker.unused_name()
    topics = [new_topic(good[0]), new_topic("not/legal"), new_topic(bad, 0), new_topic(good[1], 2)]
    seen = AnswerParts({result.name: result.error_code for result in create(broker, *topics)})
    made = dict.fromkeys(good, ErrorCode.NONE)
    refused = {"not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION, bad: ErrorCode.INVALID_PARTITIONS}
    broker.expect_equal("the results", seen, made | refused)
    for name, partitions in zip(good, (1, 2), strict=True):
        broker.await_topic(name, partitions)
    version = broker.version_for(DeleteTopicsRequest)
    answer = broker.call(delete_topics_request([good[0], bad, good[1]], version), version)
    seen = AnswerParts({result.name: result.error_code for result in answer.responses})
    broker.expect_equal("the results of deleting", seen, made | {bad: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    broker.eventually(lambda: not existing(broker) & set(good), "the good ones are gone")


@requirement(
    "TOP-13",
    notices="stuck: producers and consumers wait for a leader that never comes",
    source="ReplicationControlManager.createTopic; MetadataResponse schema",
    sentence="Soon after a topic was made each of its partitions has a leader, is empty, and takes records.",
    accepted="for 12 partitions, within 15 s: a leader, end offset 0, the first record at offset 0",
)
def usable_soon(broker: Broker) -> None:
    topic = broker.topic(12)
    for partition in range(12):
        broker.expect_equal(f"the end of partition {partition}", broker.end_offset(topic, partition), 0)
        offset = broker.append(topic, batch(b"%d" % partition), partition=partition)
        broker.expect_equal(f"the first offset in partition {partition}", offset, 0)
    for partition in range(12):
        held = values(broker.log(topic, partition=partition))
        broker.expect_equal(f"the records of partition {partition}", held, [b"%d" % partition])


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
    """Its leader of before knows the topic neither by its id nor (unless there is a new one of its name) by its name."""

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
    """The partition's answer comes to be this error: the broker itself may learn of a deletion after its metadata."""
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
        broker.expect(name not in existing(broker), "it was not made")
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
    "an offset below the log start leaves it where it is",
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
    """DeleteRecords succeeded, and the log begins there."""
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
