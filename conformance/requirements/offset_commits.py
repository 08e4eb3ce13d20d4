"""OFF: OffsetCommit and OffsetFetch: which offsets are stored, for which group, and from which clients."""

import uuid

from conformance.answers import only
from conformance.broker import Broker
from conformance.classic_groups import Group
from conformance.committed_offsets import (
    NOTHING,
    SEVERAL_GROUPS,
    TOPICS_BY_ID,
    Committed,
    Found,
    TopicPartition,
    commit,
    committed,
    committed_of,
    expect_committed,
    expect_offset,
)
from conformance.requirement import requirement
from conformance.steps import built_on
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest

EPOCH_COMMITTED, EPOCH_FETCHED = 6, 5
"""The first versions of OffsetCommit and OffsetFetch with a leader epoch (KIP-320)."""
GROUP_ABSENT = 9
"""The first version of OffsetCommit with a separate error for a group that does not exist (KIP-848)."""
KEPT_BY_COORDINATOR = 1
"""The first version of OffsetCommit and OffsetFetch whose offsets the coordinator stores, and not ZooKeeper."""
LONGEST_METADATA = 4_096
MANY_PARTITIONS = 300
TOO_MANY = 100
"""The number of partitions whose metadata, 4,096 letters of three bytes each, exceeds the largest batch of 1 MiB."""


def commit_versions(broker: Broker) -> range:
    """The versions of OffsetCommit that both sides support, without v0, whose offsets ZooKeeper stores."""
    first, last = broker.versions_of(OffsetCommitRequest)
    return range(max(first, KEPT_BY_COORDINATOR), last + 1)


def fetch_versions(broker: Broker, lowest: int = KEPT_BY_COORDINATOR) -> range:
    """The versions of OffsetFetch that both sides support, from `lowest` on; by default without v0, which reads ZooKeeper."""
    first, last = broker.versions_of(OffsetFetchRequest)
    return range(max(first, lowest), last + 1)


def unknown_topic(broker: Broker) -> Topic:
    """A topic that does not exist."""
    return Topic(broker.unused_name("nowhere"), uuid.uuid4(), 1)


@requirement(
    "OFF-01",
    notices="data: a consumer that starts again begins at another offset",
    source="KIP-211, KIP-320; OffsetMetadataManager.commitOffset, fetchOffsets",
    sentence="What is committed is what is reported: offset, metadata and leader epoch, in whatever versions.",
    accepted="for every version of OffsetCommit the same in every version of OffsetFetch; the leader epoch where both have "
    "one, "
    "else -1",
)
def reported_as_committed(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker).name
    for version in commit_versions(broker):
        with broker.case(f"OffsetCommit v{version}"):
            said = Committed(1_000_000_000_000 + version, f"größe v{version}", 3)
            codes = commit(broker, group, {(topic, 0): said}, version=version)
            broker.expect_equal("the errors", codes, {(topic, 0): ErrorCode.NONE})
            for asked in fetch_versions(broker):
                found = committed(broker, group, [(topic, 0)], version=asked)
                broker.expect_error(found.error_code, ErrorCode.NONE, what=f"OffsetFetch v{asked}")
                epoch = 3 if version >= EPOCH_COMMITTED and asked >= EPOCH_FETCHED else -1
                wanted = {(topic, 0): said._replace(leader_epoch=epoch)}
                broker.expect_equal(f"what OffsetFetch v{asked} reports", found.partitions, wanted)
                broker.expect_equal("the partition's error", found.errors, {(topic, 0): ErrorCode.NONE})


@built_on("OFF-10")
def all_committed(broker: Broker, group: str, version: int) -> Found:
    """The response of OffsetFetch for all partitions of a group."""
    return committed(broker, group, None, version=version, as_reported=True)


@requirement(
    "OFF-02",
    notices="data: clients begin by auto.offset.reset on -1 alone; on 0 they read all again, on an error not at all",
    source="OffsetMetadataManager.fetchOffsets",
    sentence="A partition for which the group committed nothing, and every partition of a group that was not used, is reported "
    "as offset -1 with no metadata and no error.",
    accepted="offset -1, leader epoch -1, NONE(0) in every version; no topics where all are asked for",
)
def nothing_committed(broker: Broker) -> None:
    topic = broker.topic(2)
    used, unused = Group(broker).name, Group(broker).name
    expect_committed(broker, used, {(topic, 1): 5})
    for version in fetch_versions(broker):
        for group in (used, unused):
            found = committed(broker, group, [(topic, 0)], version=version, as_reported=True)
            broker.expect_error(found.error_code, ErrorCode.NONE, what=f"OffsetFetch v{version}")
            reported = {partition: (one.offset, one.leader_epoch) for partition, one in found.partitions.items()}
            broker.expect_equal("the offset and leader epoch", reported, {(topic, 0): (NOTHING, -1)})
            broker.expect_equal("the partition's error", found.errors, {(topic, 0): ErrorCode.NONE})
        if version >= 2:
            found = all_committed(broker, unused, version)
            broker.expect_equal("all of an unused group", (found.error_code, found.partitions), (ErrorCode.NONE, {}))


@requirement(
    "OFF-03",
    notices="data: one deleted topic keeps a consumer of many from committing any, and it reads them again",
    source="KafkaApis.handleOffsetCommitRequest",
    sentence="A commit for a topic or partition that does not exist is refused for it, with UNKNOWN_TOPIC_OR_PARTITION, or "
    "from v10 on UNKNOWN_TOPIC_ID where it is the topic; the others of the request are stored.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3), UNKNOWN_TOPIC_ID(100) for the id from v10 on, in every version; NONE(0) for the "
    "others",
)
def unknown_partitions(broker: Broker) -> None:
    topic, nowhere = broker.topic(), unknown_topic(broker)
    group = Group(broker).name
    for version in commit_versions(broker):
        with broker.case(f"v{version}"):
            wanted: dict[TopicPartition, int] = {
                (nowhere, 0): ErrorCode.UNKNOWN_TOPIC_ID
                if version >= TOPICS_BY_ID
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                (topic, 0): ErrorCode.NONE,
                (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            if not broker.is_kafka("2.0"):
                del wanted[topic, 7]
            codes = commit(broker, group, dict.fromkeys(wanted, version), version=version)
            broker.expect_equal("the errors", codes, wanted)
            expect_offset(broker, group, topic, version, "the offset of the one that exists")


@requirement(
    "OFF-04",
    notices="operator: metadata of any size fill the offsets topic; Java and librdkafka report this code to the user",
    source="offset.metadata.max.bytes; OffsetMetadataManager.isMetadataInvalid",
    sentence="Metadata longer than offset.metadata.max.bytes are refused with OFFSET_METADATA_TOO_LARGE for their partition; "
    "the others of the request are stored.",
    accepted="OFFSET_METADATA_TOO_LARGE(12) for 4,097 letters, NONE(0) for 4,096 and for the others; the refused one keeps its "
    "offset",
    draft="the length is not counted in bytes but in UTF-16 units: 4,096 two-byte letters are taken, 2,049 emojis are not",
    configs={"offset.metadata.max.bytes": str(LONGEST_METADATA)},
)
def long_metadata(broker: Broker) -> None:
    topic = broker.topic(3)
    group = Group(broker).name
    expect_committed(broker, group, {(topic, 1): 1})
    for letter, longest in (("x", LONGEST_METADATA), ("ß", LONGEST_METADATA), ("\U0001f600", LONGEST_METADATA // 2)):
        with broker.case(f"{len(letter.encode())}-byte letters"):
            fits, not_fits = Committed(7, letter * longest), Committed(7, letter * (longest + 1))
            codes = commit(broker, group, {(topic, 0): fits, (topic, 1): not_fits, (topic, 2): 7})
            refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
            broker.expect_equal("the errors", codes, {(topic, 0): 0, (topic, 1): refused, (topic, 2): 0})
            found = committed(broker, group, [(topic, 0), (topic, 1), (topic, 2)]).partitions
            broker.expect_equal("the offsets", sorted(one.offset for one in found.values()), [1, 7, 7])
            broker.expect(found.get((topic, 0)) == fits, "the longest metadata are reported whole")


@requirement(
    "OFF-10",
    notices="tool: Java's Admin.listConsumerGroupOffsets and kafka-consumer-groups show all offsets by it",
    source="KIP-88; OffsetMetadataManager.fetchAllOffsets",
    sentence="From v2 on, no list of topics asks for all partitions of which the group committed something, and for no others; "
    "an empty list asks for none.",
    accepted="the partitions of two topics, with their offsets, in every version; nothing for the empty list",
    apis={"OffsetFetch": 2},
)
def all_partitions(broker: Broker) -> None:
    one, other, unused = broker.topic(3), broker.topic(), broker.topic()
    group, neighbour = Group(broker).name, Group(broker).name
    offsets: dict[TopicPartition, int] = {(one, 0): 1, (one, 2): 2, (other, 0): 3}
    expect_committed(broker, group, offsets)
    expect_committed(broker, neighbour, {(unused, 0): 9})
    for version in fetch_versions(broker, 2):
        found = committed(broker, group, None, known=[one, other, unused], version=version)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"OffsetFetch v{version}")
        reported = {key: value.offset for key, value in found.partitions.items()}
        broker.expect_equal(f"what v{version} reports", reported, offsets)
        broker.expect_equal("an empty list", committed(broker, group, [], version=version).partitions, {})


@requirement(
    "OFF-11",
    notices="misread: Java asks in this form, for one group or for many, and looks for the entry of its group",
    source="KIP-709; KafkaApis.handleOffsetFetchRequest",
    sentence="From v8 on, OffsetFetch asks for several groups, each with its own partitions or all, and each is answered by "
    "itself.",
    accepted="five groups in one request, one of them unused, one asked for all: each with its own offsets",
    apis={"OffsetFetch": SEVERAL_GROUPS},
)
def several_groups(broker: Broker) -> None:
    topic = broker.topic(2)
    groups = groups_of_one_coordinator(broker, 5)
    for number, group in enumerate(groups[:4]):
        expect_committed(broker, group, {(topic, 0): number, (topic, 1): 10 + number})
    asked = {group: [(topic, 0)] for group in groups} | {groups[3]: None}
    for version in fetch_versions(broker, SEVERAL_GROUPS):
        found = committed_of(broker, asked, known=[topic], version=version)
        broker.expect_equal("the groups", sorted(found), sorted(groups))
        for number, group in enumerate(groups):
            broker.expect_error(found[group].error_code, ErrorCode.NONE, what=f"group {number}")
            reported = {key[1]: value.offset for key, value in found[group].partitions.items()}
            wanted = {3: {0: 3, 1: 13}, 4: {0: NOTHING}}.get(number, {0: number})
            broker.expect_equal(f"v{version}: group {number}", reported, wanted)


def groups_of_one_coordinator(broker: Broker, count: int) -> list[str]:
    """The names of `count` unused groups with the same coordinator."""
    by_address: dict[tuple[str, int], list[str]] = {}
    for _ in range(count * max(broker.subject.nodes, 1) * 4):
        name = Group(broker).name
        found = by_address.setdefault(broker.coordinator(name), [])
        found.append(name)
        if len(found) == count:
            return found
    broker.fail(f"no node coordinates {count} of {sum(map(len, by_address.values()))} groups")


@requirement(
    "OFF-12",
    notices="data: a consumer that was set back, as by --reset-offsets, starts where it was",
    source="OffsetMetadataManager.replay",
    sentence="The last commit counts, also where its offset is smaller: nothing of an earlier one is reported, neither its "
    "offset nor its metadata.",
    accepted="each of 10, 3, 700, 0 is reported after it was committed, with its own metadata",
    tolerated="no metadata: OFF-01 speaks of metadata that are lost",
)
def the_last_one_counts(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker).name
    for number, offset in enumerate((10, 3, 700, 0)):
        metadata = "" if number % 2 else f"with {offset}"
        expect_committed(broker, group, {(topic, 0): Committed(offset, metadata)})
        found = only(
            [*committed(broker, group, [(topic, 0)]).partitions.values()], "partition in the answer to OffsetFetch"
        )
        broker.expect_equal("the offset", found.offset, offset)
        if metadata and not found.metadata:
            broker.tolerate(f"the metadata {metadata!r} are reported as {found.metadata!r}")
        else:
            broker.expect_equal("the metadata", found.metadata, metadata)


@requirement(
    "OFF-19",
    notices="misread: a consumer of a topic that was made again gets the old one's offset",
    source="KIP-848; KafkaApis.handleOffsetFetchRequest",
    sentence="From v10 on, a topic is named by its id: one that was deleted and made again is another topic, and an unknown id "
    "is UNKNOWN_TOPIC_ID.",
    accepted="UNKNOWN_TOPIC_ID(100) for the unknown id and offset -1, the offset for the known one; below v10 an unknown name "
    "is offset -1 without an error",
    apis={"OffsetFetch": TOPICS_BY_ID, "OffsetCommit": TOPICS_BY_ID},
)
def topics_by_id(broker: Broker) -> None:
    topic, nowhere = broker.topic(), unknown_topic(broker)
    group = Group(broker).name
    codes = commit(broker, group, {(topic, 0): 4}, version=TOPICS_BY_ID)
    broker.expect_equal("the errors", codes, {(topic, 0): ErrorCode.NONE})
    for version in fetch_versions(broker, SEVERAL_GROUPS):
        found = committed(broker, group, [(nowhere, 0), (topic, 0)], version=version)
        offsets = {key: one.offset for key, one in found.partitions.items()}
        broker.expect_equal(f"v{version}: the offsets", offsets, {(nowhere, 0): NOTHING, (topic, 0): 4})
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPICS_BY_ID else ErrorCode.NONE
        broker.expect_equal("the errors", found.errors, {(nowhere, 0): unknown, (topic, 0): ErrorCode.NONE})


@requirement(
    "OFF-20",
    notices="data: a group begins where another one stopped",
    source="OffsetMetadataManager; documentation, design, consumer position",
    sentence="Each group has offsets of its own: what one commits is not reported to another.",
    accepted="three groups with one topic: each its own offset, also after one of them commits again",
)
def groups_apart(broker: Broker) -> None:
    topic = broker.topic()
    groups = [Group(broker).name for _ in range(3)]
    for number, group in enumerate(groups):
        expect_committed(broker, group, {(topic, 0): number * 100})
    expect_committed(broker, groups[1], {(topic, 0): 7})
    for group, offset in zip(groups, (0, 7, 200), strict=True):
        expect_offset(broker, group, topic, offset, "its offset")


@requirement(
    "OFF-21",
    notices="tool: MirrorMaker 2 and --reset-offsets set offsets that the log does not have yet, or any more",
    source="OffsetCommitRequest schema; OffsetMetadataManager.commitOffset",
    sentence="The offset is whatever the client says: no client compares it with the log.",
    accepted="offsets beyond the log's end, of 2^62 and of 0, are reported as committed, with null metadata too",
    requires=("BAS-08",),
)
def whatever_the_client_says(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker).name
    for offset in (0, 2**62, 1_000):
        expect_committed(broker, group, {(topic, 0): Committed(offset, None)})
        found = committed(broker, group, [(topic, 0)]).partitions
        broker.expect_equal("the offset", {key: one.offset for key, one in found.items()}, {(topic, 0): offset})


@requirement(
    "OFF-22",
    notices="stuck: a consumer of many partitions commits all at once, and never gets on",
    source="OffsetMetadataManager.commitOffset",
    sentence="One request commits for hundreds of partitions and topics at once; each is reported.",
    accepted=f"{MANY_PARTITIONS} partitions with offsets and metadata of their own, by their names and all at once",
    deadline_s=60,
)
def many_partitions(broker: Broker) -> None:
    topics = [broker.topic(MANY_PARTITIONS // 3) for _ in range(3)]
    group = Group(broker).name
    offsets: dict[TopicPartition, Committed | int] = {
        (topic, partition): Committed(number * 1000 + partition, f"{number}/{partition}")
        for number, topic in enumerate(topics)
        for partition in range(topic.partitions)
    }
    expect_committed(broker, group, offsets)
    for asked in (list(offsets), None):
        found = committed(broker, group, asked, known=topics)
        broker.expect(
            found.partitions == offsets,
            f"{len(found.partitions)} partitions are reported as committed, all of them and no others",
        )


@requirement(
    "OFF-23",
    notices="client: Java with group.id= and assign() commits under it, with a warning",
    source="GroupCoordinatorService.isGroupIdNotEmpty; KIP-289",
    sentence="The empty group id, under which no client can join, still has offsets, as old clients without a group use it.",
    accepted="NONE(0) for OffsetCommit and OffsetFetch, and the offset is reported",
    tolerated="INVALID_GROUP_ID(24) for the commit",
    requires=("BAS-08",),
)
def the_empty_group(broker: Broker) -> None:
    topic = broker.topic()
    to = Group(broker).address if broker.subject.nodes == 1 else broker.coordinator("")
    code = only_code(commit(broker, "", {(topic, 0): 5}, to=to))
    broker.expect_error(code, ErrorCode.NONE, tolerated={ErrorCode.INVALID_GROUP_ID}, what="OffsetCommit")
    if code == ErrorCode.NONE:
        found = committed(broker, "", [(topic, 0)], to=to)
        reported = {partition: one.offset for partition, one in found.partitions.items()}
        broker.expect_equal("what is reported", reported, {(topic, 0): 5})


def only_code(codes: dict[TopicPartition, int]) -> int:
    """The error code of the only partition; UNKNOWN_SERVER_ERROR if no partition is reported."""
    return next(iter(codes.values()), ErrorCode.UNKNOWN_SERVER_ERROR)


@requirement(
    "OFF-24",
    notices="none seen: Java, librdkafka and franz-go send no commit without partitions",
    source="KafkaApis.handleOffsetCommitRequest",
    sentence="A commit that names no partition is answered with none, and changes nothing.",
    accepted="no topics in the answer, in every version, also where a topic is named and none of its partitions; the group's "
    "offsets are as before",
)
def commits_of_nothing(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker).name
    expect_committed(broker, group, {(topic, 0): 5})
    for version in commit_versions(broker):
        bare = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id)
        for topics in ([], [bare]):
            request = OffsetCommitRequest(group_id=group, topics=topics)
            answer = broker.call(request, version, to=broker.coordinator(group))
            broker.expect_equal(f"v{version}: the topics in the answer", list(answer.topics), [])
    expect_offset(broker, group, topic, 5, "the offset")


@requirement(
    "OFF-30",
    notices="client: a consumer with long metadata cannot determine what was committed and what not",
    source="CoordinatorRuntime (append of a batch); max.message.bytes of __consumer_offsets",
    sentence="A commit that does not fit into one batch of the offsets topic is refused for all its partitions, and none of it "
    "is stored; the group goes on.",
    accepted="the same error for each of 100 partitions with 12 KiB of metadata, and the offsets as before; a smaller commit "
    "afterwards is taken",
    tolerated="that all of it is stored",
    deadline_s=60,
)
def too_much_at_once(broker: Broker) -> None:
    topic = broker.topic(TOO_MANY)
    group = Group(broker).name
    expect_committed(broker, group, {(topic, TOO_MANY - 1): 7})
    offsets: dict[TopicPartition, Committed | int] = {
        (topic, partition): Committed(partition, "組" * LONGEST_METADATA) for partition in range(TOO_MANY)
    }
    codes = commit(broker, group, offsets)
    broker.expect_equal("the partitions answered", set(codes), set(offsets))
    broker.expect(len(set(codes.values())) == 1, f"each partition has the same error: {sorted(set(codes.values()))}")
    found = committed(broker, group, None, known=[topic]).partitions
    reported = {key: one.offset for key, one in found.items()}
    if set(codes.values()) == {ErrorCode.NONE}:
        broker.expect_equal("what is reported", reported, {key: key[1] for key in offsets})
        broker.tolerate("the request is accepted as a whole")
    else:
        broker.expect_equal("what is reported", reported, {(topic, TOO_MANY - 1): 7})
    expect_committed(broker, group, {(topic, 0): 8})
    expect_offset(broker, group, topic, 8, "the offset of a smaller commit")


@requirement(
    "OFF-32",
    notices="none seen: Java, librdkafka and franz-go read null metadata and empty ones alike",
    source="OffsetCommitRequest schema; OffsetMetadataManager.commitOffset, fetchOffsets",
    sentence="Where there are no metadata OffsetFetch reports the empty text: where nothing was committed, and where null was.",
    accepted="the empty text, not null, in every version",
)
def empty_metadata(broker: Broker) -> None:
    topic = broker.topic(2)
    group = Group(broker).name
    expect_committed(broker, group, {(topic, 0): Committed(5, None)})
    for version in fetch_versions(broker):
        found = committed(broker, group, [(topic, 0), (topic, 1)], version=version, as_reported=True).partitions
        reported = {partition: one.metadata for partition, one in found.items()}
        broker.expect_equal(f"v{version}: the metadata", reported, {(topic, 0): "", (topic, 1): ""})
