"""TOP: creating and deleting topics. A refused request changes nothing."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from conformance.answers import AnswerParts, number, only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.observations import Skipped
from conformance.requirement import requirement
from conformance.steps import built_on, directly
from conformance.wire import Failed, NoAnswer
from linearizability.client.requests import delete_topics_request, new_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
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
"""The number of partitions, or the replication factor, for the broker's default."""
UNKNOWN_BROKER = 99_999
TIMEOUT_MS = 10_000
BY_ID = 6
"""The first version of DeleteTopics with topic ids."""
DYNAMIC_TOPIC, DEFAULT_SOURCE, OF_BROKERS = 1, 5, (2, 3, 4)
"""Sources of a configuration: set on the topic, Kafka's default, or set on brokers."""


# ---- requests


def create(
    broker: Broker, *topics: CreateTopicsRequest.CreatableTopic, version: int | None = None, validate_only: bool = False
) -> list[Any]:
    """The results of CreateTopics. On a busy machine all brokers may be fenced for a moment: then it is repeated."""
    broker.subject.topics += [topic.name for topic in topics]
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    single = {topic.name for topic in topics if topic.replication_factor == 1}
    results: list[Any] = []

    def answered() -> bool:
        results[:] = broker.call(request, version).topics
        return not any(
            each.error_code == ErrorCode.INVALID_REPLICATION_FACTOR and each.name in single for each in results
        )

    try:
        broker.eventually(answered, "CreateTopics with one replica is not refused with INVALID_REPLICATION_FACTOR")
    except NoAnswer:
        if not results:
            raise
    return results


def assigned(
    name: str,
    assignments: Sequence[tuple[int, Sequence[int]]],
    num_partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
) -> CreateTopicsRequest.CreatableTopic:
    """A topic with assigned replicas, (partition, brokers) each; by default without a count and a replication factor."""
    replicas = CreateTopicsRequest.CreatableReplicaAssignment
    return CreateTopicsRequest.CreatableTopic(
        name=TopicName(name),
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=[replicas(partition_index=partition, broker_ids=list(ids)) for partition, ids in assignments],
    )


def delete(broker: Broker, *topics: tuple[str | None, UUID], version: int | None = None) -> list[Any]:
    """The results of DeleteTopics v6+ for topics (name, id)."""
    broker.needs_deletion()
    state = DeleteTopicsRequest.DeleteTopicState
    asked = [state(name=name, topic_id=id) for name, id in topics]
    return broker.call(DeleteTopicsRequest(topics=asked, timeout_ms=TIMEOUT_MS), version or BY_ID).responses


@built_on("TOP-16")
def delete_by_name(broker: Broker, *names: str) -> None:
    """Delete topics, and wait until Metadata no longer lists them."""
    broker.needs_deletion()
    version = broker.version_for(DeleteTopicsRequest)
    for result in broker.call(delete_topics_request(names, version), version).responses:
        broker.expect_error(result.error_code, ErrorCode.NONE, what=f"deleting {result.name}")
    broker.eventually(lambda: not existing(broker) & set(names), "the deleted topics leave the metadata")


# ---- helpers and judgements


def existing(broker: Broker) -> set[str]:
    """The names of all topics."""
    return {topic.name for topic in broker.metadata(None).topics}


def node_ids(broker: Broker) -> list[int]:
    """The ids of the brokers in Metadata; expects at least one."""
    found = sorted(one.node_id for one in broker.metadata([]).brokers)
    broker.expect(bool(found), f"brokers, at least one, are in Metadata: {found}")
    return found


def expect_refused(broker: Broker, topic: Any, *accepted: ErrorCode, what: str = "", **options: Any) -> None:
    """Expect that CreateTopics for one topic is refused with one of the errors, and creates nothing."""
    result = only(create(broker, topic, **options), f"result for {topic.name!r}")
    try:
        broker.expect_error(result.error_code, *accepted, what=what)
        broker.expect(topic.name not in existing(broker), "there is no such topic")
    except Failed:
        if result.error_code == ErrorCode.NONE:  # the topic must not hinder later restarts of the target
            with suppress(Failed, Skipped):
                delete_by_name(broker, topic.name)
        raise


@requirement(
    "TOP-01",
    notices="operator: a topic that no other Kafka takes, so that it cannot be mirrored or restored there",
    source="Topic.validate; ReplicationControlManager.validateNewTopicNames",
    sentence="A topic's name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'; any other "
    "is refused with INVALID_TOPIC_EXCEPTION.",
    accepted="INVALID_TOPIC_EXCEPTION(17) and no topic; names of 1 and 249 characters, and one of all kinds of them, are made",
    apis={"CreateTopics": 0},
    exclusive=True,
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
    with suppress(Skipped):  # a broker that deletes no topics keeps it
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
    notices="stuck: Java's Admin, Streams and Connect (v4), and KafkaJS (v2, v3), leave both to the broker, and make no topic",
    source="KIP-464; num.partitions, default.replication.factor; ReplicationControlManager.createTopic",
    sentence="-1 for the partition count or the replication factor means the broker's default, in each version that is served.",
    accepted="num.partitions partitions and default.replication.factor replicas, where they are described, each alone and both; "
    "no error for both in versions before 4",
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
    for version in broker.versions_among(CreateTopicsRequest, 2, 3):
        with broker.case(f"both in v{version}"):
            topic = new_topic(broker.unused_name(), DEFAULT, replication_factor=DEFAULT)
            broker.expect_error(only(create(broker, topic, version=version), "result").error_code, ErrorCode.NONE)


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
    if not broker.by_kraft():  # Kafka with ZooKeeper accepts these, and waits for the brokers
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
            broker.expect(name not in existing(broker), f"v{version}: the topic was not created")
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
    accepted="the numbers that were asked for; a configuration that was set with source 1, one that was not with source 5, or "
    "with that of the broker's own; the id that Metadata gives",
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
            policy = configs.get("cleanup.policy")
            if "cleanup.policy" in broker.subject.profile.pinned and policy and policy[1] in OF_BROKERS:
                broker.saw(f"cleanup.policy={policy[0]} is the broker's own")
            else:
                broker.expect_equal("cleanup.policy", policy, ("delete", DEFAULT_SOURCE, False))
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
    exclusive=True,
)
def each_its_own(broker: Broker) -> None:
    broker.needs_deletion()
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
