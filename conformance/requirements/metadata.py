"""MET: metadata, topic ids, and the description of the cluster."""

from contextlib import suppress
from uuid import UUID

from conformance.answers import AnswerParts, number, only
from conformance.batches import batch
from conformance.broker import METADATA_WITH_EPOCHS, Broker
from conformance.requirement import requirement
from conformance.steps import built_on
from conformance.wire import Closed, NoAnswer
from linearizability.client.requests import Topic, delete_topics_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_cluster import DescribeClusterRequest
from reference.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID

NO_EPOCH = -1
"""The leader epoch in a response that reports none."""
FETCH_WITH_IDS = 13
"""The first version of Fetch with topic ids."""
WITH_CLUSTER_ID = 2
"""The first version of Metadata with the cluster id."""
WITH_IDS = 10
"""The first version of Metadata with topic ids."""
NOT_ASKED = -2147483648
"""The authorized operations in a response if the request did not ask for them."""
INVALID_NAMES = ("", ".", "..", "a" * 250, "slash/ed", "white space", "ä", "a\x00b", "semi;colon", "star*")


def by_name(*names: str) -> list[MetadataRequest.MetadataRequestTopic]:
    """Topics of a request, by name."""
    return [MetadataRequest.MetadataRequestTopic(name=name) for name in names]


def by_id(*ids: UUID, name: str | None = None) -> list[MetadataRequest.MetadataRequestTopic]:
    """Topics of a request, by id."""
    return [MetadataRequest.MetadataRequestTopic(name=name, topic_id=id) for id in ids]


def all_names(broker: Broker) -> set[str]:
    """The names of all topics."""
    return {topic.name for topic in broker.metadata(None).topics}


@requirement(
    "MET-01",
    notices="stuck: a pattern subscription (Java, librdkafka) asks for all topics; a producer's first request for brokers only",
    source="MetadataRequest schema",
    sentence="A null topic array asks for all topics and an empty one for none; in v0 the empty one asks for all. The brokers "
    "are listed each time.",
    accepted="in every version, all topics or none, and at least one broker",
    tolerated="topics for the empty array, too: clients leave aside what they did not ask for",
)
def all_or_none(broker: Broker) -> None:
    topic = broker.topic()
    lowest, highest = broker.versions_of(MetadataRequest)
    for version in range(lowest, highest + 1):
        with broker.case(f"v{version}"):
            every = broker.metadata(None if version else [], version=version)
            broker.expect(
                topic.name in {one.name for one in every.topics}, f"{len(every.topics)} topics, the newest among them"
            )
            broker.expect(
                bool(every.brokers), f"{len(every.brokers)} brokers, at least one, are listed with all topics"
            )
            if version:
                none = broker.metadata([], version=version)
                if len(none.topics):
                    broker.tolerate(f"{len(none.topics)} topics for the empty array")
                broker.expect(
                    bool(none.brokers), f"{len(none.brokers)} brokers, at least one, are listed with no topics"
                )


@requirement(
    "MET-02",
    notices="stuck: clients connect to these addresses for all that they do; librdkafka warns where the cluster id changes",
    source="KafkaApis.handleTopicMetadataRequest",
    sentence="The brokers are listed with node id, host and port of the listener on which the request came; the cluster id "
    "(v2+) is not empty, and the same from every broker.",
    accepted="each listed address takes a connection and gives the same cluster id and the same brokers",
)
def brokers_and_cluster_id(broker: Broker) -> None:
    first = broker.metadata([], version=2)
    broker.expect(bool(first.cluster_id), f"the cluster id is not empty: {first.cluster_id!r}")
    nodes = [one.node_id for one in first.brokers]
    broker.expect(
        len(set(nodes)) == len(nodes) and min(nodes, default=-1) >= 0,
        f"the node ids are different, and 0 or more: {nodes}",
    )
    for one in first.brokers:
        other = broker.metadata([], version=2, to=(one.host, one.port))
        broker.expect_equal(f"the cluster id at {one.host}:{one.port}", other.cluster_id, first.cluster_id)

    def agreed() -> bool:
        """Whether all brokers list the same brokers. One that was fenced may be missing at some of them for a moment."""
        asked = [(one.host, one.port) for one in broker.metadata([], version=2).brokers]
        lists = [broker.metadata([], version=2, to=place).brokers for place in asked]
        return len({tuple(sorted(map(repr, brokers))) for brokers in lists}) == 1

    broker.eventually(agreed, "the same brokers are listed at each of them")


@requirement(
    "MET-03",
    notices="operator: Java's Admin.describeTopics asks so, and a question would make the topic",
    source="KafkaApis.getTopicMetadata; KIP-204 (allow_auto_topic_creation, v4+)",
    sentence="An unknown topic asked for without auto-creation is UNKNOWN_TOPIC_OR_PARTITION without partitions, and is not "
    "created.",
    accepted="error UNKNOWN_TOPIC_OR_PARTITION(3), no partitions, in v4 and the highest version; still unknown afterwards",
    apis={"Metadata": 4},
)
def unknown_topic(broker: Broker) -> None:
    name = broker.unused_name()
    for version in broker.versions_among(MetadataRequest, 4):
        found = only(broker.metadata(by_name(name), version=version).topics, "topic in the answer")
        broker.expect_error(found.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"v{version}")
        broker.expect_equal("its name", found.name, name)
        broker.expect_equal("its partitions", found.partitions, [])
    broker.expect(name not in all_names(broker), "the topic was not created")


@requirement(
    "MET-04",
    notices="client: Java ends send() and poll() with InvalidTopicException at once; on other codes it waits for the topic",
    source="Topic.validate; KafkaApis.getTopicMetadata",
    sentence="An illegal topic name is INVALID_TOPIC_EXCEPTION, and nothing is created.",
    accepted="error INVALID_TOPIC_EXCEPTION(17); no such topic afterwards",
    configs={"auto.create.topics.enable": "true"},
)
def illegal_name(broker: Broker) -> None:
    for name in INVALID_NAMES:
        with broker.case(f"{name[:20]!r}"):
            found = only(broker.metadata(by_name(name), auto_create=True).topics, "topic in the answer")
            broker.expect_error(found.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)
            broker.expect_equal("its partitions", found.partitions, [])
    if created := all_names(broker) & set(INVALID_NAMES):  # a topic with the name "" would answer for unknown ids
        version = broker.version_for(DeleteTopicsRequest)
        broker.call(delete_topics_request(sorted(created), version), version)
    broker.expect(not created, f"none of them was created: {sorted(created)}")


@requirement(
    "MET-05",
    notices="client: a producer to a new topic fails after max.block.ms where auto-creation is on and does not happen",
    source="AutoTopicCreationManager; auto.create.topics.enable, num.partitions",
    sentence="An unknown topic asked for with auto-creation is created: the first answer says UNKNOWN_TOPIC_OR_PARTITION, "
    "later ones reach error 0 with num.partitions partitions.",
    accepted="first UNKNOWN_TOPIC_OR_PARTITION(3) or LEADER_NOT_AVAILABLE(5), then NONE(0)",
    tolerated="NONE(0) at once",
    configs={"auto.create.topics.enable": "true"},
)
def auto_creation(broker: Broker) -> None:
    name = broker.unused_name()
    broker.subject.topics.append(name)
    first = only(broker.metadata(by_name(name), auto_create=True).topics, "topic in the answer")
    broker.expect_error(
        first.error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        tolerated={ErrorCode.NONE},
        what="the first answer",
    )
    described = broker.subject.profile.configs.get("num.partitions")
    partitions = number(described, "num.partitions") if described else 0
    topic = broker.await_topic(name, partitions or 1)
    broker.expect_equal("its partitions", topic.partitions, partitions or topic.partitions)


@requirement(
    "MET-06",
    notices="operator: topics that were deleted come back, because a consumer's pattern asks for all again and again",
    source="KafkaApis.handleTopicMetadataRequest (isAllTopics)",
    sentence="A request for all topics creates none, not even one that was deleted.",
    accepted="asked with auto-creation allowed, neither a deleted topic nor an unknown one appears",
    configs={"auto.create.topics.enable": "true"},
    exclusive=True,
)
def all_topics_create_none(broker: Broker) -> None:
    topic = broker.topic()
    delete(broker, topic)
    for version in broker.versions_among(MetadataRequest, 0, 1):
        listed = broker.metadata(None if version else [], version=version, auto_create=True).topics
        broker.expect(topic.name not in {one.name for one in listed}, f"v{version} does not list the deleted topic")
    broker.expect(topic.name not in all_names(broker), "the deleted topic does not exist afterwards")


@requirement(
    "MET-07",
    notices="misread: clients send to the leader named here; librdkafka and Java compare leader epochs before they believe it",
    source="MetadataResponse schema; KRaftMetadataCache",
    sentence="Each partition has its leader, replicas and in-sync replicas: the leader is in sync, the in-sync ones are "
    "replicas, replicas are brokers and each is named once, none is offline while all brokers run, the leader epoch (v7+) is 0 "
    "or more, and the partitions are numbered from 0 on.",
    accepted="these relations for a topic of 5 partitions",
    tolerated="leader epoch -1: no client takes that for one (RequestUtils.getLeaderEpoch)",
)
def partitions_in_order(broker: Broker) -> None:
    topic = broker.topic(5, replication_factor=broker.subject.nodes)
    nodes = {one.node_id for one in broker.metadata([]).brokers}
    found = broker.describe_topic(topic.name).partitions
    broker.expect_equal("the partitions' numbers", sorted(p.partition_index for p in found), [0, 1, 2, 3, 4])
    for p in found:
        reported = (
            f"partition {p.partition_index}: leader {p.leader_id}, replicas {p.replica_nodes}, in sync {p.isr_nodes}"
        )
        related = p.leader_id in p.isr_nodes and set(p.isr_nodes) <= set(p.replica_nodes) <= nodes
        broker.expect(related and len({*p.replica_nodes}) == len(p.replica_nodes), reported)
        if broker.version_for(MetadataRequest) >= METADATA_WITH_EPOCHS:
            reported = f"partition {p.partition_index}: leader epoch {p.leader_epoch}"
            broker.expect(p.leader_epoch >= NO_EPOCH, reported)
            if p.leader_epoch == NO_EPOCH:
                broker.tolerate(reported)
        broker.expect_equal(f"partition {p.partition_index}: offline replicas", p.offline_replicas, [])


@built_on("TOP-16")
def delete(broker: Broker, topic: Topic) -> None:
    """Delete a topic, and wait until Metadata no longer lists it."""
    broker.needs_deletion()
    version = broker.version_for(DeleteTopicsRequest)
    broker.call(delete_topics_request([topic.name], version), version)
    broker.eventually(lambda: topic.name not in all_names(broker), "the deleted topic leaves the metadata")


@requirement(
    "MET-09",
    notices="stuck: Java ignores the leader of a topic that was made again as of an older epoch, unless its id differs",
    source="KIP-516; MetadataResponse schema",
    sentence="From v10 on a topic has an id that is not zero and stays; a topic that is deleted and made again has another.",
    accepted="the same id twice, another one after deletion and creation",
    tolerated="no id where there is no leader epoch to mistake, and no version of Fetch that asks by id",
    apis={"Metadata": 10},
    exclusive=True,
)
def topic_ids(broker: Broker) -> None:
    if broker.version_for(MetadataRequest) < WITH_IDS:
        broker.skip(f"needs Metadata v{WITH_IDS}, which the target advertises and does not serve (API-05)")
    topic = broker.topic()
    epochs = {each.leader_epoch for each in broker.describe_topic(topic.name).partitions}
    _, newest_fetch = broker.subject.api_versions.get(FetchRequest.KEY, (0, 0))
    if (topic.id, epochs) == (NO_UUID, {NO_EPOCH}) and newest_fetch < FETCH_WITH_IDS:
        broker.tolerate("no id, no leader epoch, and no Fetch that needs an id")
        return
    broker.expect(topic.id != NO_UUID, f"the topic id is not zero: {topic.id}")
    broker.expect_equal("the id when asked again", broker.describe_topic(topic.name).topic_id, topic.id)
    delete(broker, topic)
    taken = ErrorCode.TOPIC_ALREADY_EXISTS  # with ZooKeeper the metadata may lose a topic before its name is free
    broker.eventually(lambda: broker.create_topic(topic.name).error_code != taken, "the name is free again")
    again = broker.await_topic(topic.name)
    broker.expect(again.id not in (topic.id, NO_UUID), f"the id of the topic made again is another one: {again.id}")


@requirement(
    "MET-10",
    notices="stuck: a Java consumer that subscribes by a pattern (KIP-848) asks with an empty name, and reads nothing",
    source="KIP-516; KafkaApis.handleTopicMetadataRequest",
    sentence="From v12 on a topic can be asked for by id, with a null or an empty name: a known one gives its name and "
    "partitions, an unknown one UNKNOWN_TOPIC_ID with a null name.",
    accepted="name and partitions for the known id; UNKNOWN_TOPIC_ID(100), null name and that id for the unknown one",
    apis={"Metadata": 12},
)
def asked_by_id(broker: Broker) -> None:
    topic = broker.topic(2)
    unknown = UUID(int=topic.id.int ^ 0xFFFF)
    for asked in (None, ""):
        with broker.case(f"the name {asked!r}"):
            found = only(
                broker.metadata(by_id(broker.id_of(topic), name=asked), version=12).topics, "topic in the answer"
            )
            broker.expect_error(found.error_code, ErrorCode.NONE)
            broker.expect_equal("its name", found.name, topic.name)
            broker.expect_equal("its partitions", len(found.partitions), topic.partitions)
            missing = only(broker.metadata(by_id(unknown, name=asked), version=12).topics, "topic in the answer")
            broker.expect_error(missing.error_code, ErrorCode.UNKNOWN_TOPIC_ID)
            broker.expect_equal("its name and id", (missing.name, missing.topic_id), (None, unknown))


@requirement(
    "MET-11",
    notices="none seen: Java's Admin asks for ids from v12 on only, other clients never before",
    source="KafkaApis.handleTopicMetadataRequest (InvalidRequestException)",
    sentence="A topic id, or a null name, in a version from 10 to 11 is refused, never answered with a topic.",
    accepted="INVALID_REQUEST(42) for the topic, or the connection is closed",
    apis={"Metadata": 11},
)
def id_before_v12(broker: Broker) -> None:
    topic = broker.topic()
    for name, asked in {
        "an id": (None, broker.id_of(topic)),
        "a null name": (None, NO_UUID),
        "both": (topic.name, topic.id),
    }.items():
        for version in (10, 11):
            with broker.case(f"{name} in v{version}"):
                entry = MetadataRequest.MetadataRequestTopic(name=asked[0], topic_id=asked[1])
                try:
                    answer = broker.metadata([entry], version=version)
                except Closed:
                    broker.saw("the connection was closed")
                    continue
                for found in answer.topics:
                    broker.expect_error(found.error_code, ErrorCode.INVALID_REQUEST)
                    broker.expect_equal("its partitions", found.partitions, [])
                broker.saw(f"{len(answer.topics)} topics in the answer, all refused")


@requirement(
    "MET-12",
    notices="client: pattern subscriptions and Admin.listTopics of Java leave internal topics out by this mark",
    source="Topic.isInternal",
    sentence="Exactly the topics of the coordinators are marked as internal, where there are such topics.",
    accepted="__consumer_offsets and __transaction_state, where they are listed, are internal; an ordinary topic (also one that "
    "begins with __) is not",
)
def internal_topics(broker: Broker) -> None:
    ordinary, underscored = broker.topic(), broker.topic(name="__" + broker.unused_name())
    broker.coordinator(broker.unused_name("group"))
    marked = AnswerParts({topic.name: topic.is_internal for topic in broker.metadata(None).topics})
    for name in ("__consumer_offsets", "__transaction_state"):
        broker.expect_equal(f"{name} is internal", marked.get(name, True), True)
    broker.expect_equal(f"{ordinary.name} is internal", marked[ordinary.name], False)
    broker.expect_equal(f"{underscored.name} is internal", marked[underscored.name], False)
    known = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
    broker.expect_equal(
        "other internal topics", sorted({name for name, is_one in marked.items() if is_one} - known), []
    )


@requirement(
    "MET-13",
    notices="tool: Java's Admin shows operations that were not asked for, or none where they were asked for",
    source="KIP-430; KafkaApis.handleTopicMetadataRequest",
    sentence="The authorized operations are -2147483648 when they were not asked for, and a bit field when they were.",
    accepted="-2147483648 (0 before 2.5) for cluster (v8 to v10) and topic; another value when asked",
    apis={"Metadata": 8},
)
def authorized_operations(broker: Broker) -> None:
    topic = broker.topic()
    answer = broker.metadata(by_name(topic.name), version=8)
    nothing = NOT_ASKED if broker.is_kafka("2.5") else 0
    broker.expect_equal("for the cluster, not asked", answer.cluster_authorized_operations, nothing)
    broker.expect_equal(
        "for the topic, not asked", only(answer.topics, "topic in the answer").topic_authorized_operations, nothing
    )
    asked = broker.call(
        MetadataRequest(
            topics=by_name(topic.name),
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
        8,
    )
    for what, bits in (
        ("cluster", asked.cluster_authorized_operations),
        ("topic", only(asked.topics, "topic in the answer").topic_authorized_operations),
    ):
        broker.expect(bits not in (NOT_ASKED, 0), f"for the {what}, asked, it is a bit field: {bits:#x}")


@requirement(
    "MET-14",
    notices="tool: Java's Admin.describeCluster uses it, and falls back to Metadata only where it is not advertised",
    source="KIP-700; DescribeClusterResponse schema",
    sentence="DescribeCluster gives the cluster id and the brokers that Metadata gives.",
    accepted="equal cluster id, node ids, hosts, ports and racks in every version",
    apis={"DescribeCluster": 0},
)
def describe_cluster(broker: Broker) -> None:
    metadata = broker.metadata([])
    lowest, highest = broker.versions_of(DescribeClusterRequest)
    for version in range(lowest, highest + 1):
        found = broker.call(DescribeClusterRequest(), version)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}")
        if broker.version_for(MetadataRequest) >= WITH_CLUSTER_ID:
            broker.expect_equal(f"v{version}: the cluster id", found.cluster_id, metadata.cluster_id)
        seen = sorted(((one.broker_id, one.host, one.port, one.rack) for one in found.brokers), key=repr)
        wanted = sorted(((one.node_id, one.host, one.port, one.rack) for one in metadata.brokers), key=repr)
        broker.expect_equal(f"v{version}: the brokers", seen, wanted)


@requirement(
    "MET-15",
    notices="tool: kafka-topics --describe uses it, and would lack partitions or show them twice",
    source="KIP-966; DescribeTopicPartitionsRequestHandler",
    sentence="DescribeTopicPartitions gives pages with a cursor; walked to the end they hold the partitions that Metadata gives, "
    "and the errors of topics that do not exist.",
    accepted="with a limit of 2 partitions a page: no page is larger, none is missing, none comes twice; a missing topic after a "
    "full page is UNKNOWN_TOPIC_OR_PARTITION(3) on a later one",
    apis={"DescribeTopicPartitions": 0},
)
def pages_of_partitions(broker: Broker) -> None:
    topics = sorted((broker.topic(3), broker.topic(3)), key=lambda topic: topic.name)
    missing = f"{topics[-1].name}-missing"
    asked = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in (*(t.name for t in topics), missing)]
    seen: list[tuple[str, int, int]]
    refused: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    seen, refused, cursor = [], [], None
    for _ in range(10):
        answer = broker.call(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=2, cursor=cursor), 0)
        page = [(topic.name, p.partition_index, p.leader_id) for topic in answer.topics for p in topic.partitions]
        broker.expect(len(page) <= 2, f"a page has {len(page)} partitions, at most two")
        seen += page
        refused += [topic for topic in answer.topics if topic.name == missing]
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    wanted = [
        (topic.name, p.partition_index, p.leader_id)
        for topic in topics
        for p in sorted(broker.describe_topic(topic.name).partitions, key=lambda p: p.partition_index)
    ]
    broker.expect_equal("the partitions of all pages", seen, wanted)
    broker.expect(bool(refused), "some page has the topic that does not exist")
    for topic in refused:
        broker.expect_error(
            topic.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="the topic that does not exist"
        )


@requirement(
    "MET-17",
    notices="operator: a typo in any client's configuration makes a topic, though the administrator switched that off",
    source="auto.create.topics.enable; KafkaApis.getTopicMetadata",
    sentence="With auto.create.topics.enable=false an unknown topic is never created, also where the request allows it.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3) from Metadata and Produce, and the topic is not there afterwards",
    configs={"auto.create.topics.enable": "false"},
)
def auto_creation_disabled(broker: Broker) -> None:
    name = broker.unused_name()
    for version in broker.versions_among(MetadataRequest, 0):
        found = only(broker.metadata(by_name(name), version=version, auto_create=True).topics, "topic in the answer")
        broker.expect_error(found.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"Metadata v{version}")
    version = min(9, broker.version_for(ProduceRequest))
    result = broker.produce(Topic(name, NO_UUID, 1), batch(b"x"), version=version)
    broker.expect_error(result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"Produce v{version}")
    broker.expect(name not in all_names(broker), "the topic was not created")


@requirement(
    "MET-18",
    apis={"Metadata": 4},
    notices="stuck: clients ask for all their topics in one request; one bad name would stop the others",
    source="KafkaApis.handleTopicMetadataRequest",
    sentence="In one request for several topics each has its own answer: a bad one does not spoil the others.",
    accepted="a known topic with partitions beside an unknown and an illegal one with their errors",
)
def each_topic_its_own(broker: Broker) -> None:
    topic, unknown = broker.topic(), broker.unused_name()
    found = AnswerParts({one.name: one for one in broker.metadata(by_name(unknown, topic.name, "not/legal")).topics})
    broker.expect_equal("the topics in the answer", sorted(found), sorted((unknown, topic.name, "not/legal")))
    broker.expect_error(found[topic.name].error_code, ErrorCode.NONE, what="the known topic")
    broker.expect_equal("its partitions", len(found[topic.name].partitions), topic.partitions)
    broker.expect_error(found[unknown].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="the unknown topic")
    broker.expect_error(
        found["not/legal"].error_code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        what="the illegal name",
    )


@requirement(
    "MET-19",
    apis={"Metadata": 1},
    notices="stuck: Java's Admin sends CreateTopics and the like to this node only, and asks again until its timeout",
    source="KafkaApis.handleTopicMetadataRequest; KafkaAdminClient.ControllerNodeProvider",
    sentence="From v1 on, Metadata names one of the brokers that it lists as the controller.",
    accepted="within the time that a controller takes to be elected, in every version",
)
def controller_is_listed(broker: Broker) -> None:
    lowest, highest = broker.versions_of(MetadataRequest)
    for version in range(max(lowest, 1), highest + 1):

        def listed(version: int = version) -> bool:
            found = broker.metadata([], version=version)
            return found.controller_id in {one.node_id for one in found.brokers}

        with suppress(NoAnswer):
            broker.eventually(listed, f"v{version}: the controller is a listed broker")
        found = broker.metadata([], version=version)
        nodes = [one.node_id for one in found.brokers]
        broker.expect(found.controller_id in nodes, f"v{version}: controller {found.controller_id} is one of {nodes}")
